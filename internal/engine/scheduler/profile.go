package scheduler

import (
	"cmp"
	"encoding/json"
	"fmt"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/schedule"
)

// profiles finds SchedulingProfiles in the cell and among those from the engine's configuration.
type profiles struct {
	cell       *cell.Cell
	configured []*cellplanev1alpha1.SchedulingProfile
}

// get returns the profile with the given name, or nil.
func (p *profiles) get(name string) *cellplanev1alpha1.SchedulingProfile {
	if profile := p.cell.Profiles.Get(cell.Key{Name: name}); profile != nil {
		return profile
	}
	for _, profile := range p.configured {
		if profile.Name == name {
			return profile
		}
	}
	return nil
}

// profile returns the SchedulingProfile of a binding: the one named by its annotation, otherwise the one named by
// its scheduler name.
func (s *Scheduler) profile(binding *workv1alpha2.ResourceBinding) (*cellplanev1alpha1.SchedulingProfileSpec, *schedule.Failure) {
	wanted := binding.Annotations[names.SchedulingProfileAnnotation]
	name := cmp.Or(wanted, binding.Spec.SchedulerName)
	if name == "" {
		return nil, nil
	}
	if profile := s.profiles.get(name); profile != nil {
		return &profile.Spec, nil
	}
	if wanted == "" {
		return nil, nil
	}
	return nil, &schedule.Failure{
		Reason:  names.ReasonSchedulerError,
		Message: fmt.Sprintf("SchedulingProfile %q does not exist; create it, or remove the annotation %s from the policy.", wanted, names.SchedulingProfileAnnotation),
	}
}

// paced reports whether a profile moves replicas step by step, so that decisions become due without any event.
func paced(profile *cellplanev1alpha1.SchedulingProfileSpec) bool {
	return profile != nil && profile.Sites != nil &&
		(profile.Sites.Drain != nil || profile.Sites.Burst != nil && profile.Sites.Burst.ComeBack != nil)
}

// readyReplicas counts the ready replicas in the clusters of a binding. It counts at most the placed replicas of
// each cluster: replicas that were just removed from a cluster may still be reported.
func readyReplicas(binding *workv1alpha2.ResourceBinding) int32 {
	ready := int32(0)
	for i := range binding.Status.AggregatedStatus {
		item := &binding.Status.AggregatedStatus[i]
		for j := range binding.Spec.Clusters {
			if target := &binding.Spec.Clusters[j]; target.Name == item.ClusterName {
				ready += min(readyIn(item), target.Replicas)
			}
		}
	}
	return ready
}

// readyIn counts the ready replicas in one cluster.
func readyIn(item *workv1alpha2.AggregatedStatusItem) int32 {
	if item.Status == nil {
		return 0
	}
	var status struct {
		ReadyReplicas int32 `json:"readyReplicas"`
	}
	if json.Unmarshal(item.Status.Raw, &status) != nil {
		return 0
	}
	return status.ReadyReplicas
}
