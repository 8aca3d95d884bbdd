package clusterstatus

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// monitorLease checks the lease of a member whose agent writes the status, and reports an expired one.
func (c *collector) monitorLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	// Read uncached: there are few of them, and an informer would receive every renewal.
	err := c.controller.live.Get(ctx, client.ObjectKey{Namespace: names.ClusterNamespace, Name: c.name}, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the lease of cluster %s: %w", c.name, err)
	}
	silent := c.silence(time.Now(), lease)
	return c.write(ctx, func(cluster *clusterv1alpha1.Cluster) {
		if silent != nil {
			meta.SetStatusCondition(&cluster.Status.Conditions, *silent)
		}
	})
}

// observedLease is what was seen of the lease of an agent. Times are those of this process: the clock of the agent's machine may be wrong, and
// that of this machine may jump.
type observedLease struct {
	// since is when the lease was first looked at, and renewed when it was last seen to change.
	since, renewed time.Time
	last           metav1.MicroTime
}

// see takes a look at the lease.
func (o *observedLease) see(now time.Time, lease *coordinationv1.Lease) {
	if o.since.IsZero() {
		o.since, o.renewed = now, now
	}
	if renewal := lease.Spec.RenewTime; renewal != nil && !renewal.Equal(&o.last) {
		o.last, o.renewed = *renewal, now
	}
}

// silence returns the condition of a member whose lease is not renewed, else nil. A process that has just started waits as long as for an agent
// that has just stopped.
func (c *collector) silence(now time.Time, lease *coordinationv1.Lease) *metav1.Condition {
	options := &c.controller.options
	c.lease.see(now, lease)
	if lease.Spec.RenewTime == nil {
		if now.Sub(c.lease.since) < options.StartupGracePeriod {
			return nil
		}
		never := condition(metav1.ConditionUnknown, reasonNeverReported, "The agent of the cluster has never reported.")
		return &never
	}
	if now.Sub(c.lease.renewed) < options.MonitorGracePeriod {
		return nil
	}
	stopped := condition(metav1.ConditionUnknown, reasonUnknown, "The agent of the cluster has stopped reporting.")
	return &stopped
}
