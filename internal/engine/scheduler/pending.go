package scheduler

import (
	"cmp"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// waits reports whether replicas of a binding may stay pending in a cluster until it grows: the profile allows it
// and the cluster can grow. Capacity is then reserved only for the replicas that fit.
func (p *reservations) waits(binding *workv1alpha2.ResourceBinding, cluster string) bool {
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
