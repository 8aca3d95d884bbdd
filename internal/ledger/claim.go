package ledger

import (
	"fmt"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

// Claim asks for room in a cluster, or gives it back.
type Claim struct {
	// Cluster whose room is asked for.
	Cluster string
	// Workload whose pods will run there.
	Workload cellplanev1alpha1.WorkloadReference
	// Component of the workload, if it has several.
	Component string
	// Total is how many pods of the workload the cluster is to run when all is done.
	Total int32
	// More is by how many that is more than was decided before. Less than none gives room back.
	More int32
	// Pod is what one of the pods asks for.
	Pod *simulate.Pod
	// Waits tells that pods without room wait in the cluster until it has grown: room is promised for as many as there is.
	Waits bool
}

// Refusal is the error of a claim that there is no room for any more.
type Refusal struct { //nolint:errname // it is an answer, too
	// Cluster that lacks room.
	Cluster string
	// Asked is how many pods were claimed and Left for how many there is room.
	Asked, Left int32
}

// Error says what is lacking where.
func (r *Refusal) Error() string {
	return fmt.Sprintf("cluster %s has room for %d of %d more replicas", r.Cluster, r.Left, r.Asked)
}
