package clusterstatus

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// collector writes the status of one Cluster while it runs.
type collector struct {
	name       string
	uid        types.UID // empty in an agent, whose member stays the same when its Cluster is replaced
	controller *Controller
	source     source
	member     *member // nil without credentials
	readiness  readiness
	lease      observedLease // of an agent
	wake       chan struct{}
	cancel     context.CancelFunc
}

// wakeUp collects the status now rather than at the end of the interval.
func (c *collector) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // it is about to be
	}
}

// follow switches to changed credentials and reports whether it could.
func (c *collector) follow(cluster *clusterv1alpha1.Cluster, s source) bool {
	if c.source.pull || s.pull || c.member == nil || s.secret == nil {
		return c.source.pull == s.pull && c.member == nil && s.secret == nil && c.source.reason == s.reason
	}
	if !c.member.connection.Apply(cluster, s.secret) {
		return false
	}
	c.wakeUp()
	return true
}

// run collects until the context ends.
func (c *collector) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", c.name))
	var watching sync.WaitGroup
	defer watching.Wait()
	if c.member != nil {
		watching.Go(func() { c.member.watch(ctx) })
	}
	interval := c.controller.options.Interval
	if c.source.pull {
		interval = c.controller.options.MonitorInterval
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.wake:
		}
		began := time.Now()
		err := c.collect(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "writing the status of a cluster failed")
		}
		observeDuration(c.name, time.Since(began))
		timer.Reset(max(0, interval-time.Since(began)))
	}
}

// collect reads the state of the member and writes the status.
func (c *collector) collect(ctx context.Context) error {
	if c.source.pull {
		return c.monitorLease(ctx)
	}
	observed := condition(metav1.ConditionFalse, reasonNotReachable, c.source.reason)
	var found findings
	if c.member != nil {
		observed = c.member.probe(ctx)
		if observed.Status == metav1.ConditionTrue {
			found = c.member.find(ctx)
		}
	}
	if ctx.Err() != nil {
		return nil // results while stopping do not count
	}
	return c.write(ctx, func(cluster *clusterv1alpha1.Cluster) {
		current := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterReady)
		ready := c.readiness.decide(time.Now(), current, observed, &c.controller.options)
		meta.SetStatusCondition(&cluster.Status.Conditions, ready)
		found.writeTo(cluster)
	})
}

// errGone means that the collector's Cluster was replaced.
var errGone = errors.New("the cluster has been replaced")

// write updates the status of the Cluster if it has changed.
func (c *collector) write(ctx context.Context, change func(*clusterv1alpha1.Cluster)) error {
	reader := client.Reader(c.controller.client)
	for {
		err := c.tryWrite(ctx, reader, change)
		switch {
		case apierrors.IsConflict(err):
			reader = c.controller.live // the cache is behind
		case apierrors.IsNotFound(err), errors.Is(err, errGone):
			return nil // the controller is about to stop us
		default:
			return err
		}
	}
}

func (c *collector) tryWrite(ctx context.Context, reader client.Reader, change func(*clusterv1alpha1.Cluster)) error {
	cluster := &clusterv1alpha1.Cluster{}
	if err := reader.Get(ctx, client.ObjectKey{Name: c.name}, cluster); err != nil {
		return err
	}
	if c.uid != "" && cluster.UID != c.uid {
		return errGone
	}
	before := cluster.DeepCopy()
	change(cluster)
	recordMetrics(cluster)
	if equality.Semantic.DeepEqual(before.Status, cluster.Status) {
		return nil
	}
	return c.controller.client.Status().Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func condition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: names.ClusterReady, Status: status, Reason: reason, Message: message}
}
