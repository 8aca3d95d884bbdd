package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scale"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Options are the options of the autoscaler.
type Options struct {
	autoscale.Settings
	// Period is how often each autoscaler decides, if no new metrics come before.
	Period time.Duration
}

// settle is how long metrics of other clusters are awaited after those of one have come.
const settle = 300 * time.Millisecond

// absentDelay is how long an engine waits before it looks for the target of an autoscaler that no other engine has taken care of. Up to the same time is added,
// so that not all engines look at once.
const absentDelay = 15 * time.Second

// claimTime is how long a policy may take to claim a new HorizontalPodAutoscaler. Until then it is not known whether it acts in the federation.
const claimTime = 5 * time.Second

// Controller scales the templates of a cell.
type Controller struct {
	cell       *cell.Cell
	federation *federation
	recorder   *events.Recorder
	options    Options
	queue      *queue.Queue[target]
	scalers    *scalers
	reports    *reports
	now        func() time.Time

	mu      sync.Mutex
	states  map[target]*state
	patient map[target]time.Time // until when other engines are awaited
}

// state is what is remembered between decisions about a target in this cell.
type state struct {
	scaler  types.UID // whose history it is
	history autoscale.History
	// tried is when the target was last scaled, or that was refused. Written is when a status was last written.
	tried, written time.Time
}

// New returns the autoscaler of a cell. Config is for the gateway's view of all templates.
func New(c *cell.Cell, config *rest.Config, recorder *events.Recorder, options Options) (*Controller, error) {
	remote, err := newFederation(config)
	if err != nil {
		return nil, err
	}
	a := &Controller{cell: c, federation: remote, recorder: recorder, options: options, queue: queue.New[target]("autoscaler"), now: time.Now, states: map[target]*state{}, patient: map[target]time.Time{}}
	a.scalers = newScalers(a.queue.AddNow)
	a.reports = newReports(a.reported, a.now)
	c.Templates.Subscribe(a.templateChanged)
	return a, nil
}

// templateChanged queues a template with an autoscaler that comes, goes, or begins to move.
func (a *Controller) templateChanged(key cell.TemplateKey, old, now *cell.Template) {
	if (old == nil) != (now == nil) || old != nil && now != nil && old.Frozen != now.Frozen {
		if t := (target{key.GroupKind(), key.Key}); len(a.scalers.of(t)) > 0 {
			a.queue.Add(t)
		}
	}
}

// reported queues a target about which a cluster has reported. Most are in other cells.
func (a *Controller) reported(t target) {
	a.mu.Lock()
	_, here := a.states[t]
	a.mu.Unlock()
	if here {
		a.queue.AddAfter(t, settle)
	}
}

// Run scales until the context ends. It decides nothing before all autoscalers are known.
func (a *Controller) Run(ctx context.Context, workers int) {
	var wait sync.WaitGroup
	defer wait.Wait()
	failed := func(what string, also func()) func(error) {
		log := fleet.EachReason(func(err error) { klog.FromContext(ctx).Info("cannot watch "+what+", retrying", "err", err) })
		return func(err error) {
			also()
			log(err)
		}
	}
	nothing := func() {}
	var synced []<-chan struct{}
	for _, kind := range []schema.GroupVersionKind{plainKind, federatedKind} {
		sink := a.scalers.sink(kind)
		synced = append(synced, sink.synced)
		source := a.federation.source(func() client.ObjectList { return listOf(kind) }, nothing)
		wait.Go(func() { fleet.Watch(ctx, source, sink, failed("autoscalers", nothing)) })
	}
	source := a.federation.source(func() client.ObjectList { return &metricsv1alpha1.WorkloadMetricsList{} }, a.reports.watched).Labelled(names.AutoscalerLabel + "=true")
	wait.Go(func() { fleet.Watch(ctx, source, a.reports, failed("the metrics of workloads", a.reports.failed)) })
	for _, ready := range synced {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
	}
	a.queue.Run(ctx, workers, a.Reconcile)
}

// Reconcile decides about the replicas of one target.
func (a *Controller) Reconcile(ctx context.Context, t target) error {
	scalers := a.scalers.of(t)
	if len(scalers) == 0 {
		a.forget(t)
		return nil
	}
	var template *cell.Template
	kind := a.cell.Templates.Served(t.GroupKind)
	if kind != nil {
		template = a.cell.Templates.Get(cell.TemplateKey{GroupVersionKind: kind.GroupVersionKind, Key: t.Key})
	}
	switch {
	case template == nil:
		return a.absent(ctx, kind, t, scalers)
	case template.Frozen:
		a.forget(t)
		return nil // the engine of the new cell continues
	case template.Deleting:
		return nil
	case len(scalers) > 1:
		a.forget(t)
		return a.refuse(ctx, scalers, ambiguousSelector, fmt.Sprintf("%d autoscalers scale %s, so none of them does", len(scalers), t))
	case template.Labels[names.RetainReplicasLabel] == "true":
		return a.refuse(ctx, scalers, replicasRetained, "the members own the replicas of the target: it has the label "+names.RetainReplicasLabel)
	}
	s := scalers[0]
	if wait := s.created.Add(claimTime).Sub(a.now()); s.GroupVersionKind == plainKind && wait > 0 {
		return queue.Later{After: wait}
	}
	wait, err := a.decide(ctx, s, kind, template)
	if err != nil {
		return err
	}
	return queue.Later{After: wait}
}

// decide decides and scales. It returns when to come back.
func (a *Controller) decide(ctx context.Context, s *scaler, kind *cell.Kind, template *cell.Template) (_ time.Duration, err error) {
	state, now := a.stateOf(s), a.now()
	// Without a behavior replicas are at most doubled in a decision, so decisions must not follow each other sooner than in Kubernetes.
	if wait := lastTried(s, state, now).Add(a.options.Period).Sub(now); wait > 0 {
		return wait, nil
	}
	binding := a.cell.Binding(template.Key().Binding())
	if binding == nil || a.cell.TemplateOf(binding) != template {
		return 0, a.refuse(ctx, []*scaler{s}, "FailedGetResourceMetric", "no policy propagates the target")
	}
	if s.values != "" && s.values != names.MetricValuesSum && s.values != names.MetricValuesMax {
		message := fmt.Sprintf("the annotation %s is %q, but must be %s or %s", names.MetricValuesAnnotation, s.values, names.MetricValuesSum, names.MetricValuesMax)
		return 0, a.refuse(ctx, []*scaler{s}, invalidMetricValues, message)
	}
	var refusal error
	defer func() { observeProcess(now, a.now(), errors.Join(err, refusal)) }()
	o := observe(evidence{binding: binding, reports: a.reports.about(s.target), largest: s.values == names.MetricValuesMax}, s.spec.Metrics)
	d := autoscale.Decide(s.spec, o.workload, o.readings, &state.history, a.options.Settings, now)
	status := s.next()
	decided(status, o, d, now)
	if d.Err != nil {
		a.recorder.Failed(s.reference(), "metrics", failedReplicas, d.Err.Error())
	} else {
		a.recorder.Also(s.reference(), "metrics", "ValidMetricFound", "the metrics are known", false)
	}
	wait := a.options.Period - rand.N(a.options.Period/10) // decisions of many spread over the period
	if d.Replicas != o.workload.Replicas {
		err := a.scale(ctx, s, kind, o.workload.Replicas, d)
		if errors.Is(err, scale.ErrChanged) || apierrors.IsConflict(err) {
			return wait, nil // the cache is behind
		}
		state.tried, wait = now, a.options.Period
		if refusal = err; err != nil {
			status.DesiredReplicas = s.status.DesiredReplicas
			set(status, condition(autoscalingv2.AbleToScale, corev1.ConditionFalse, failedUpdateScale, "the HPA controller was unable to update the target scale: "+err.Error()), now)
		} else {
			state.history.Scaled(s.spec.Behavior, o.workload.Replicas, d.Replicas, now)
			status.LastScaleTime = ptr.To(metav1.NewTime(now))
			set(status, condition(autoscalingv2.AbleToScale, corev1.ConditionTrue, succeededRescale, fmt.Sprintf("the HPA controller was able to update the target scale to %d", d.Replicas)), now)
		}
	}
	return wait, a.write(ctx, s, status, state)
}

// lastTried returns when the target was last scaled, or that was refused. Another engine may have scaled it; its clock may be wrong.
func lastTried(s *scaler, state *state, now time.Time) time.Time {
	if scaled := s.status.LastScaleTime; scaled != nil && scaled.After(state.tried) && !scaled.After(now) {
		return scaled.Time
	}
	return state.tried
}

// scale writes the replicas, if they still are those that the decision was about.
func (a *Controller) scale(ctx context.Context, s *scaler, kind *cell.Kind, from int32, d autoscale.Decision) error {
	err := scale.Write(ctx, a.federation.objects, kind, s.target.Key, &from, d.Replicas)
	switch {
	case err == nil:
		a.recorder.Succeeded(s.reference(), "scale", successfulRescale, fmt.Sprintf("New size: %d; reason: %s", d.Replicas, d.Reason), true)
	case !errors.Is(err, scale.ErrChanged) && !apierrors.IsConflict(err):
		a.recorder.Failed(s.reference(), "scale", failedRescale, fmt.Sprintf("New size: %d; reason: %s; error: %v", d.Replicas, d.Reason, err))
	}
	return err
}

// refuse says that autoscalers do not act.
func (a *Controller) refuse(ctx context.Context, scalers []*scaler, reason, message string) error {
	for _, s := range scalers {
		status, now := s.next(), a.now()
		set(status, condition(autoscalingv2.ScalingActive, corev1.ConditionFalse, reason, message), now)
		a.recorder.Failed(s.reference(), "metrics", reason, message)
		if err := a.write(ctx, s, status, nil); err != nil {
			return err
		}
	}
	return queue.Later{After: a.options.Period}
}

// absent handles targets that are not in this cell. The engine of the cell that has one takes care of it. Nobody does if it does not exist, so the first engine
// that notices says so.
func (a *Controller) absent(ctx context.Context, kind *cell.Kind, t target, scalers []*scaler) error {
	if had := a.forget(t); !had {
		if !slices.ContainsFunc(scalers, neglected) {
			return nil
		}
		if wait := a.patience(t); wait > 0 {
			return queue.Later{After: wait}
		}
	}
	if kind != nil {
		exists, err := scale.Exists(ctx, a.federation.objects, kind, t.Key)
		if err != nil || exists {
			return err
		}
	}
	for _, s := range scalers {
		status, message := s.next(), fmt.Sprintf("the HPA controller was unable to get the target's current scale: there is no %s with a scale", t)
		set(status, condition(autoscalingv2.AbleToScale, corev1.ConditionFalse, failedGetScale, message), a.now())
		a.recorder.Failed(s.reference(), "scale", failedGetScale, message)
		if err := a.write(ctx, s, status, nil); err != nil {
			return err
		}
	}
	return nil
}

// neglected reports whether no engine has taken care of an autoscaler yet.
func neglected(s *scaler) bool {
	return s.condition(autoscalingv2.AbleToScale) == nil && s.condition(autoscalingv2.ScalingActive) == nil
}

// patience returns how long to wait for other engines.
func (a *Controller) patience(t target) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	until, waits := a.patient[t]
	if !waits {
		until = a.now().Add(absentDelay + rand.N(absentDelay))
		a.patient[t] = until
	}
	return until.Sub(a.now())
}

// write writes a status if it is worth it.
func (a *Controller) write(ctx context.Context, s *scaler, status *autoscalingv2.HorizontalPodAutoscalerStatus, state *state) error {
	now := a.now()
	var written time.Time
	if state != nil {
		written = state.written
	}
	if !worthWriting(s.status, status, written, now) {
		return nil
	}
	if err := a.federation.writeStatus(ctx, s, status); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of %s: %w", s.id, err)
	}
	if state != nil {
		state.written = now
	}
	return nil
}

// stateOf returns what is remembered about the target of an autoscaler. Of another autoscaler nothing counts.
func (a *Controller) stateOf(s *scaler) *state {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.patient, s.target)
	known := a.states[s.target]
	if known == nil || known.scaler != s.uid {
		known = &state{scaler: s.uid}
		a.states[s.target] = known
	}
	return known
}

// forget forgets a target, and reports whether it was in this cell.
func (a *Controller) forget(t target) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.states[t]
	delete(a.states, t)
	if !known && len(a.scalers.of(t)) == 0 {
		delete(a.patient, t)
	}
	return known
}
