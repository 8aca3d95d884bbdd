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
	return c.write(ctx, func(cluster *clusterv1alpha1.Cluster) {
		if condition := c.silence(time.Now(), cluster, lease); condition != nil {
			meta.SetStatusCondition(&cluster.Status.Conditions, *condition)
		}
	})
}

// silence returns the condition of a member whose lease has expired, else nil.
func (c *collector) silence(now time.Time, cluster *clusterv1alpha1.Cluster, lease *coordinationv1.Lease) *metav1.Condition {
	options := &c.controller.options
	if lease.Spec.RenewTime == nil {
		if now.Sub(cluster.CreationTimestamp.Time) < options.StartupGracePeriod {
			return nil
		}
		never := condition(metav1.ConditionUnknown, reasonNeverReported, "The agent of the cluster has never reported.")
		return &never
	}
	if now.Sub(lease.Spec.RenewTime.Time) < options.MonitorGracePeriod {
		return nil
	}
	stopped := condition(metav1.ConditionUnknown, reasonUnknown, "The agent of the cluster has stopped reporting.")
	return &stopped
}
