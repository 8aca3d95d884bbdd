package scheduler

import (
	"encoding/json"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/affinity"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// subscribe registers for changes of bindings, profiles and clusters.
func (s *Scheduler) subscribe() {
	s.cell.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if now == nil {
			s.forget(key)
			s.groupChanged(key, old)
			if s.ledger != nil && old != nil && old.Labels[names.RebalanceStatusLabel] == "" {
				s.ledger.Release(workloadOf(old), "")
			}
			return
		}
		if old != nil && old.Generation == now.Generation && maps.Equal(old.Annotations, now.Annotations) && maps.Equal(old.Labels, now.Labels) {
			return // only the status changed
		}
		if old == nil || !sameTargets(old.Spec.Clusters, now.Spec.Clusters) {
			s.groupChanged(key, now)
		}
		event := bindingUpdated
		if old == nil {
			event = bindingAdded
		}
		incoming.WithLabelValues(event).Inc()
		s.queue.AddNow(key)
	})
	s.cell.Profiles.Subscribe(func(key cell.Key, _, _ *cellplanev1alpha1.SchedulingProfile) { s.profileChanged(key.Name) })
	s.cell.ClusterProfiles.Subscribe(func(key cell.Key, _, _ *cellplanev1alpha1.ClusterProfile) {
		s.mu.Lock()
		s.stale = true
		s.mu.Unlock()
		s.capacityFreed(key.Name)
	})
	s.cell.Clusters.Subscribe(func(_ cell.Key, old, now *clusterv1alpha1.Cluster) {
		s.mu.Lock()
		s.stale = true
		s.mu.Unlock()
		switch {
		case old == nil || now == nil || !sameForScheduling(old, now):
			s.clusterChanged(old, now)
		case !apiequality.Semantic.DeepEqual(old.Status.ResourceSummary, now.Status.ResourceSummary):
			s.capacityChanged(old, now)
		}
	})
}

// profileChanged queues the bindings that use a profile.
func (s *Scheduler) profileChanged(profile string) {
	for _, key := range s.cell.BindingKeys() {
		binding := s.cell.Binding(key)
		if binding != nil && (binding.Annotations[names.SchedulingProfileAnnotation] == profile || binding.Spec.SchedulerName == profile) {
			incoming.WithLabelValues("ProfileChanged").Inc()
			s.queue.AddNow(key)
		}
	}
}

// sameForScheduling compares the parts of a cluster that placements depend on.
func sameForScheduling(a, b *clusterv1alpha1.Cluster) bool {
	return apiequality.Semantic.DeepEqual(&a.Spec, &b.Spec) && maps.Equal(a.Labels, b.Labels) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		apiequality.Semantic.DeepEqual(a.Status.APIEnablements, b.Status.APIEnablements)
}

// clusterChanged queues the bindings whose placement selects the cluster in its old or new state.
func (s *Scheduler) clusterChanged(old, now *clusterv1alpha1.Cluster) {
	var reached []cell.Key
	for _, placement := range s.cell.Placements() {
		switch {
		case placement == "":
			reached = append(reached, s.reachedBefore(s.cell.BindingsPlaced(placement), old, now)...)
		case s.reach(placement).either(old, now):
			reached = append(reached, s.cell.BindingsPlaced(placement)...)
		}
	}
	s.enqueueAll("ClusterChanged", reached)
}

// reachedBefore drops bindings that wait under a placement which selects none of the clusters. Bindings without a
// decision stay.
func (s *Scheduler) reachedBefore(keys []cell.Key, clusters ...*clusterv1alpha1.Cluster) []cell.Key {
	s.mu.Lock()
	waitsUnder := make([]string, len(keys))
	for i, key := range keys {
		waitsUnder[i] = s.waitingUnder[key]
	}
	s.mu.Unlock()
	var reached []cell.Key
	for i, key := range keys {
		if s.reach(waitsUnder[i]).either(clusters...) {
			reached = append(reached, key)
		}
	}
	return reached
}

// reach is the set of clusters that a placement may select.
type reach struct {
	matchers []affinity.Matcher
	all      bool // every cluster: the placement is unknown or invalid
}

func (r *reach) either(clusters ...*clusterv1alpha1.Cluster) bool {
	return slices.ContainsFunc(clusters, func(cluster *clusterv1alpha1.Cluster) bool {
		return cluster != nil && (r.all || slices.ContainsFunc(r.matchers, func(m affinity.Matcher) bool { return m.Matches(cluster) }))
	})
}

// reach compiles a placement given as JSON.
func (s *Scheduler) reach(placement string) *reach {
	if known, ok := s.reaches.Get(placement); ok {
		return known.(*reach)
	}
	compiled := compileReach(placement)
	s.reaches.Add(placement, compiled)
	return compiled
}

func compileReach(text string) *reach {
	placement := policyv1alpha1.Placement{}
	if text == "" || json.Unmarshal([]byte(text), &placement) != nil {
		return &reach{all: true}
	}
	wanted := []*policyv1alpha1.ClusterAffinity{placement.ClusterAffinity}
	if len(placement.ClusterAffinities) > 0 {
		wanted = nil
	}
	for i := range placement.ClusterAffinities {
		group := &placement.ClusterAffinities[i]
		wanted = append(wanted, &group.ClusterAffinity)
		for j := range group.OverflowAffinities {
			wanted = append(wanted, &group.OverflowAffinities[j].ClusterAffinity)
		}
	}
	compiled := &reach{}
	for _, one := range wanted {
		matcher, err := affinity.Compile(one)
		if err != nil {
			return &reach{all: true}
		}
		compiled.matchers = append(compiled.matchers, matcher)
	}
	return compiled
}
