package scheduler

import (
	"cmp"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// waits tells whether replicas of a binding may wait in a cluster until it has grown: its profile gathers them, and the
// cluster can grow. Room is then reserved for those that do not have to wait.
func (p *promises) waits(binding *workv1alpha2.ResourceBinding, cluster string) bool {
	name := cmp.Or(binding.Annotations[names.SchedulingProfileAnnotation], binding.Spec.SchedulerName)
	if name == "" {
		return false
	}
	profile := p.profiles.get(name)
	if profile == nil || profile.Spec.Clusters == nil || !profile.Spec.Clusters.GatherPending {
		return false
	}
	facts := p.cell.ClusterProfiles.Get(cell.Key{Name: cluster})
	return facts != nil && facts.Spec.Elasticity != nil
}
