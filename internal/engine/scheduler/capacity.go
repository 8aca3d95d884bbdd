package scheduler

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/simulate"
)

// capacityChanged queues unschedulable bindings for which the cluster now reports more capacity.
func (s *Scheduler) capacityChanged(old, now *clusterv1alpha1.Cluster) {
	s.wakeWaiting("RoomChanged", []*clusterv1alpha1.Cluster{now}, func(_ *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) bool {
		return schedule.General(now, spec) > schedule.General(old, spec)
	})
}

// The ledger reports every released reservation. These reports are debounced; the delay grows with the number of
// waiting bindings, so that retrying them takes a bounded share of the time.
const (
	minDebounce        = 10 * time.Millisecond
	maxDebounce        = 5 * time.Second
	debouncePerBinding = 500 * time.Microsecond
)

// capacityFreed notes that a cluster may have more free capacity than before.
func (s *Scheduler) capacityFreed(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed++
	s.freedAt[cluster] = s.freed
	s.scheduleWake(cluster)
}

// scheduleWake adds a cluster to those of the next debounced wake-up. The caller holds the lock.
func (s *Scheduler) scheduleWake(cluster string) {
	s.freedClusters[cluster] = struct{}{}
	if s.wakePending {
		return
	}
	s.wakePending = true
	time.AfterFunc(max(minDebounce, min(time.Duration(len(s.waitingUnder))*debouncePerBinding, maxDebounce)), s.wakeForFreed)
}

// wakeMissed schedules a wake-up for clusters that freed capacity after the given epoch. Such capacity was freed
// while a decision was being made without it, before its binding was in the waiting set. The caller holds the lock.
func (s *Scheduler) wakeMissed(epoch int) {
	if epoch == s.freed {
		return
	}
	for cluster, at := range s.freedAt {
		if at > epoch {
			s.scheduleWake(cluster)
		}
	}
}

// wakeForFreed queues the waiting bindings that may fit into the clusters with freed capacity.
func (s *Scheduler) wakeForFreed() {
	s.mu.Lock()
	freedClusters := s.freedClusters
	s.freedClusters, s.wakePending = map[string]struct{}{}, false
	waits := len(s.waiting) > 0
	s.mu.Unlock()
	if !waits {
		return
	}
	var clusters []*clusterv1alpha1.Cluster
	for name := range freedClusters {
		if cluster := s.cell.Clusters.Get(cell.Key{Name: name}); cluster != nil {
			clusters = append(clusters, cluster)
		}
	}
	s.wakeWaiting("RoomFreed", clusters, s.hasCapacity)
}

// hasCapacity reports whether a cluster may have capacity for a replica. It uses the requirements in the binding, a
// subset of those in the pod template: if they do not fit, the pod does not fit.
func (s *Scheduler) hasCapacity(cluster *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) bool {
	if s.ledger == nil || len(spec.Components) > 0 {
		return true
	}
	account := s.ledger.Account(cluster.Name)
	pod, err := simulate.FromRequirements(spec.Resource.Namespace, spec.ReplicaRequirements)
	return err != nil || !account.Known() || account.Capacity(pod).Total() > 0
}

// wakeWaiting queues the waiting bindings that may use one of the clusters and for which helps returns true.
// Answers are shared between bindings with equal requirements.
func (s *Scheduler) wakeWaiting(event string, clusters []*clusterv1alpha1.Cluster, helps func(*clusterv1alpha1.Cluster, *workv1alpha2.ResourceBindingSpec) bool) {
	s.mu.Lock()
	waiting := make(map[string][]cell.Key, len(s.waiting))
	for placement, keys := range s.waiting {
		waiting[placement] = slices.Collect(maps.Keys(keys))
	}
	s.mu.Unlock()
	type question struct{ cluster, need string }
	answers := map[question]bool{}
	var woken []cell.Key
	for placement, keys := range waiting {
		reach := s.reach(placement)
		reached := slices.DeleteFunc(slices.Clone(clusters), func(cluster *clusterv1alpha1.Cluster) bool { return !reach.either(cluster) })
		if len(reached) == 0 {
			continue
		}
		for _, key := range keys {
			binding := s.cell.Binding(key)
			if binding == nil {
				continue
			}
			need := needOf(&binding.Spec)
			if slices.ContainsFunc(reached, func(cluster *clusterv1alpha1.Cluster) bool {
				asked := question{cluster.Name, need}
				answer, known := answers[asked]
				if !known {
					answer = helps(cluster, &binding.Spec)
					answers[asked] = answer
				}
				return answer
			}) {
				woken = append(woken, key)
			}
		}
	}
	s.enqueueAll(event, woken)
}

// capacityEpoch returns a counter that grows whenever a cluster may have more free capacity.
func (s *Scheduler) capacityEpoch() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

// needOf returns a key that is equal for bindings with equal requirements.
func needOf(spec *workv1alpha2.ResourceBindingSpec) string {
	text, err := json.Marshal([]any{spec.Resource.Namespace, spec.ReplicaRequirements, spec.Components})
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
