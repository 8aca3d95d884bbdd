package doctor

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// startsWithin is how long a new cluster may take to become ready.
const startsWithin = 2 * time.Minute

// checkClusters looks for members that are not ready, and for agents that do not report.
func (d *Doctor) checkClusters(context.Context) ([]Finding, error) {
	var findings []Finding
	for i := range d.clusters {
		cluster := &d.clusters[i]
		ready := meta.FindStatusCondition(cluster.Status.Conditions, names.ClusterReady)
		if ready != nil && ready.Status == metav1.ConditionTrue || !cluster.DeletionTimestamp.IsZero() || d.now().Sub(cluster.CreationTimestamp.Time) < startsWithin {
			continue
		}
		message := "it has not reported yet"
		if ready != nil {
			message = ready.Message
		}
		kind := ClusterNotReady
		if cluster.Spec.SyncMode == clusterv1alpha1.Pull && (ready == nil || ready.Status == metav1.ConditionUnknown) {
			kind = AgentSilent
		}
		findings = append(findings, find(kind, Error, "Cluster "+cluster.Name, message))
	}
	return findings, nil
}
