package scheduler

import (
	"context"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// groupLocks serialize decisions for bindings of the same workload affinity group, because each decision depends on
// where the others are placed.
type groupLocks [64]sync.Mutex

// lock locks the groups of a binding and returns the function that unlocks them.
func (l *groupLocks) lock(binding *workv1alpha2.ResourceBinding) (unlock func()) {
	groups := binding.Spec.WorkloadAffinityGroups
	if groups == nil {
		return func() {}
	}
	var stripes []int
	for _, group := range []string{groups.AffinityGroup, groups.AntiAffinityGroup} {
		if group != "" {
			stripes = append(stripes, int(xxhash.Sum64String(binding.Namespace+"/"+group)%uint64(len(l))))
		}
	}
	slices.Sort(stripes) // a fixed order prevents deadlocks
	stripes = slices.Compact(stripes)
	for _, stripe := range stripes {
		l[stripe].Lock()
	}
	return func() {
		for _, stripe := range stripes {
			l[stripe].Unlock()
		}
	}
}

// Groups knows the workloads of other cells.
type Groups interface {
	// Elsewhere returns the clusters of the affinity group and of the anti-affinity group of a binding in other cells.
	Elsewhere(ctx context.Context, binding *workv1alpha2.ResourceBinding) (together, apart []string, err error)
}

// groupsElsewhere are the clusters of a binding's groups in other cells.
type groupsElsewhere struct{ together, apart []string }

func (s *Scheduler) elsewhere(ctx context.Context, binding *workv1alpha2.ResourceBinding) (e groupsElsewhere, err error) {
	if s.otherCells != nil && binding.Spec.WorkloadAffinityGroups != nil {
		e.together, e.apart, err = s.otherCells.Elsewhere(ctx, binding)
	}
	return e, err
}

// groupClusters returns the clusters that hold other bindings of the affinity group and of the anti-affinity group
// of a binding.
func (s *Scheduler) groupClusters(binding *workv1alpha2.ResourceBinding, elsewhere groupsElsewhere) (together, apart []string) {
	groups := binding.Spec.WorkloadAffinityGroups
	if groups == nil {
		return nil, nil
	}
	of := func(group string, clusters []string, member func(*workv1alpha2.WorkloadAffinityGroups) string) []string {
		if group == "" {
			return nil
		}
		for _, key := range s.cell.BindingsOfGroup(binding.Namespace, group) {
			other := s.cell.Binding(key)
			if other == nil || key.Name == binding.Name || other.DeletionTimestamp != nil || member(other.Spec.WorkloadAffinityGroups) != group {
				continue
			}
			for i := range other.Spec.Clusters {
				clusters = append(clusters, other.Spec.Clusters[i].Name)
			}
		}
		slices.Sort(clusters)
		return slices.Compact(clusters)
	}
	together = of(groups.AffinityGroup, elsewhere.together, func(g *workv1alpha2.WorkloadAffinityGroups) string { return g.AffinityGroup })
	apart = of(groups.AntiAffinityGroup, elsewhere.apart, func(g *workv1alpha2.WorkloadAffinityGroups) string { return g.AntiAffinityGroup })
	return together, apart
}

// groupChanged queues the unschedulable bindings that share a group with a binding whose clusters changed.
func (s *Scheduler) groupChanged(key cell.Key, binding *workv1alpha2.ResourceBinding) {
	if binding == nil || binding.Spec.WorkloadAffinityGroups == nil {
		return
	}
	groups := binding.Spec.WorkloadAffinityGroups
	for _, group := range []string{groups.AffinityGroup, groups.AntiAffinityGroup} {
		if group != "" {
			s.retryGroup(key.Namespace, group, key)
		}
	}
}

// RetryGroup queues the unschedulable bindings of a group whose workloads in other cells changed.
func (s *Scheduler) RetryGroup(namespace, group string) { s.retryGroup(namespace, group, cell.Key{}) }

func (s *Scheduler) retryGroup(namespace, group string, except cell.Key) {
	for _, key := range s.cell.BindingsOfGroup(namespace, group) {
		if outcome, _ := s.Last(key); key != except && outcome.Failure != nil {
			incoming.WithLabelValues("GroupChanged").Inc()
			s.queue.AddNow(key)
		}
	}
}
