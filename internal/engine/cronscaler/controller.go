package cronscaler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Reasons of events. They are those of Karmada.
const (
	startRuleFailed = "StartRuleFailed"
	scaleFailed     = "ScaleFailed"
	scaled          = "Scaled"
)

// longestWait is how long a controller waits for the next run before it looks at the clock again, which may have been set.
const longestWait = 10 * time.Minute

// Controller runs the rules of the CronFederatedHPAs of a cell.
type Controller struct {
	recorder *events.Recorder
	queue    *queue.Queue[cell.Key]
	now      func() time.Time
	source   fleet.Source
	// apply sets what a rule says, writeStatus writes a status unless the object has changed since it was read.
	apply       func(ctx context.Context, of *autoscalingv1alpha1.CronFederatedHPA, rule *autoscalingv1alpha1.CronFederatedHPARule) error
	writeStatus func(ctx context.Context, of *autoscalingv1alpha1.CronFederatedHPA) error

	mu     sync.Mutex
	known  map[cell.Key]*autoscalingv1alpha1.CronFederatedHPA
	listed fleet.Listing[cell.Key]
}

// New returns the controller of a cell. Own is for the API server of the cell, config for the gateway's view of all templates.
func New(c *cell.Cell, own, config *rest.Config, recorder *events.Recorder) (*Controller, error) {
	scheme := runtime.NewScheme()
	if err := autoscalingv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	own, config = rest.CopyConfig(own), rest.CopyConfig(config)
	own.QPS, config.QPS = -1, -1
	stored, err := client.NewWithWatch(own, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to cell %s: %w", c.Name, err)
	}
	federation, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	r := newController(recorder, time.Now)
	r.apply = (&writer{kinds: c.Templates.Served, federation: federation}).apply
	r.writeStatus = func(ctx context.Context, of *autoscalingv1alpha1.CronFederatedHPA) error {
		return stored.Status().Update(ctx, of)
	}
	r.source = fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &autoscalingv1alpha1.CronFederatedHPAList{}
			return list, stored.List(ctx, list, &client.ListOptions{Raw: &options})
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return stored.Watch(ctx, &autoscalingv1alpha1.CronFederatedHPAList{}, &client.ListOptions{Raw: &options})
		},
	}
	return r, nil
}

func newController(recorder *events.Recorder, now func() time.Time) *Controller {
	return &Controller{recorder: recorder, queue: queue.New[cell.Key]("cron-autoscaler"), now: now, known: map[cell.Key]*autoscalingv1alpha1.CronFederatedHPA{}}
}

// Run runs rules until the context ends.
func (r *Controller) Run(ctx context.Context, workers int) {
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() {
		fleet.Watch(ctx, r.source, r, fleet.EachReason(func(err error) {
			klog.FromContext(ctx).Info("cannot watch CronFederatedHPAs, retrying", "err", err)
		}))
	})
	r.queue.Run(ctx, workers, r.Reconcile)
}

// Reconcile runs the rules that are due, and returns when the next one is.
func (r *Controller) Reconcile(ctx context.Context, key cell.Key) (err error) {
	found := r.get(key)
	if found == nil || found.DeletionTimestamp != nil || found.Labels[names.RebalanceStatusLabel] != "" {
		return nil // an object that moves is run by the engine of its new cell
	}
	now, after := r.now(), longestWait
	defer func() {
		failure := err
		if errors.As(err, &queue.Later{}) {
			failure = nil
		}
		observe(processDuration, r.now().Sub(now), failure)
	}()
	of := found.DeepCopy()
	of.Status.ExecutionHistories = nil
	var retry error
	for i := range of.Spec.Rules {
		rule := &of.Spec.Rules[i]
		history := historyOf(&found.Status, rule)
		next, err := r.run(ctx, of, rule, &history, now)
		if err != nil {
			retry = err // its history stays, and so does the time of the run
		}
		if !next.IsZero() {
			after = min(after, next.Sub(now))
		}
		of.Status.ExecutionHistories = append(of.Status.ExecutionHistories, history)
	}
	if !apiequality.Semantic.DeepEqual(found.Status, of.Status) {
		if err := r.writeStatus(ctx, of); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("writing the status of CronFederatedHPA %s: %w", key, err)
		}
		r.put(of)
	}
	if retry != nil {
		return retry
	}
	return queue.Later{After: max(after, 0)}
}

// run runs a rule if it is due, and returns when it is next. An error is to be retried.
func (r *Controller) run(ctx context.Context, of *autoscalingv1alpha1.CronFederatedHPA, rule *autoscalingv1alpha1.CronFederatedHPARule, history *autoscalingv1alpha1.ExecutionHistory, now time.Time) (time.Time, error) {
	if ptr.Deref(rule.Suspend, false) {
		history.NextExecutionTime = nil
		return time.Time{}, nil
	}
	schedule, err := parse(rule)
	if err != nil {
		history.NextExecutionTime = nil
		r.recorder.Failed(reference(of), rule.Name, startRuleFailed, fmt.Sprintf("rule %s: %v", rule.Name, err))
		return time.Time{}, nil
	}
	due, next := plan(schedule, ptr.Deref(history.NextExecutionTime, metav1.Time{}).Time, now)
	if !due.IsZero() {
		start := r.now()
		err := r.apply(ctx, of, rule)
		observe(ruleDuration, r.now().Sub(start), err)
		if passing(err) && now.Sub(due) < lateness {
			return time.Time{}, fmt.Errorf("running rule %s of CronFederatedHPA %s/%s: %w", rule.Name, of.Namespace, of.Name, err)
		}
		record(history, rule, due, now, err)
		if err != nil {
			r.recorder.Failed(reference(of), rule.Name, scaleFailed, fmt.Sprintf("rule %s: %v", rule.Name, err))
		} else {
			r.recorder.Succeeded(reference(of), rule.Name, scaled, "rule "+rule.Name+" has been run", true)
		}
	}
	if history.NextExecutionTime = nil; !next.IsZero() {
		history.NextExecutionTime = ptr.To(metav1.NewTime(next))
	}
	return next, nil
}

// passing reports whether an error may be gone in a moment. What is refused stays refused.
func passing(err error) bool {
	var status apierrors.APIStatus
	if err == nil || errors.Is(err, errTarget) {
		return false
	}
	if !errors.As(err, &status) {
		return true // there was no answer
	}
	code := status.Status().Code
	return code == http.StatusConflict || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError // an object that moves is too many requests
}

func reference(of *autoscalingv1alpha1.CronFederatedHPA) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "CronFederatedHPA", Namespace: of.Namespace, Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion,
	}
}
