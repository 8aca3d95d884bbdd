package ledger

import (
	"fmt"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

// Claim reserves capacity in a cluster or releases it.
type Claim struct {
	// Cluster whose capacity is claimed.
	Cluster string
	// Workload whose pods will run there.
	Workload cellplanev1alpha1.WorkloadReference
	// Component of the workload, if it has several.
	Component string
	// Total is the number of pods of the workload in the cluster after the decision.
	Total int32
	// More is the difference to the previous decision. A negative value releases capacity.
	More int32
	// Pod is the resource demand of one pod.
	Pod *simulate.Pod
	// Waits means that pods that do not fit stay pending until the cluster grows: capacity is reserved for those
	// that fit.
	Waits bool
}

// Refusal is the error of a claim for which there is no capacity.
type Refusal struct { //nolint:errname // it is an answer, too
	// Cluster that lacks capacity.
	Cluster string
	// Asked is the number of claimed pods, Left the number that fit.
	Asked, Left int32
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("cluster %s has capacity for %d of %d more replicas", r.Cluster, r.Left, r.Asked)
}
