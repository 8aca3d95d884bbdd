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

// roomChanged looks again at the bindings without a place that the cluster, by what it says of itself, now has more room
// for.
func (s *Scheduler) roomChanged(old, now *clusterv1alpha1.Cluster) {
	s.wakeWaiting("RoomChanged", []*clusterv1alpha1.Cluster{now}, func(_ *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) bool {
		return schedule.General(now, spec) > schedule.General(old, spec)
	})
}

// Room is given back in many small pieces, and the ledger tells of each. They are gathered for a moment, the longer the
// more bindings wait, so that looking at those again never takes more than a share of the time.
const (
	shortestGathering = 10 * time.Millisecond
	longestGathering  = 5 * time.Second
	gatheringByOne    = 500 * time.Microsecond
)

// roomFreed takes note that a cluster may have more room than before.
func (s *Scheduler) roomFreed(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed++
	s.freedAt[cluster] = s.freed
	s.gather(cluster)
}

// gather remembers a cluster for the next look at the bindings that wait. It is called with the lock held.
func (s *Scheduler) gather(cluster string) {
	s.roomier[cluster] = struct{}{}
	if s.gathering {
		return
	}
	s.gathering = true
	time.AfterFunc(max(shortestGathering, min(time.Duration(len(s.filed))*gatheringByOne, longestGathering)), s.useFreed)
}

// missed gathers the clusters that got room while a decision was made without it: when its binding was not waiting yet,
// nobody could look at it again. It is called with the lock held.
func (s *Scheduler) missed(epoch int) {
	if epoch == s.freed {
		return
	}
	for cluster, at := range s.freedAt {
		if at > epoch {
			s.gather(cluster)
		}
	}
}

// useFreed looks again at the bindings without a place that the clusters with more room can help.
func (s *Scheduler) useFreed() {
	s.mu.Lock()
	roomier := s.roomier
	s.roomier, s.gathering = map[string]struct{}{}, false
	waits := len(s.waiting) > 0
	s.mu.Unlock()
	if !waits {
		return
	}
	var clusters []*clusterv1alpha1.Cluster
	for name := range roomier {
		if cluster := s.cell.Clusters.Get(cell.Key{Name: name}); cluster != nil {
			clusters = append(clusters, cluster)
		}
	}
	s.wakeWaiting("RoomFreed", clusters, s.hasRoom)
}

// hasRoom tells whether a cluster may have room for a replica. It looks at what the binding says, which is less than the
// pod template does: where there is no room for that, there is none for the pod.
func (s *Scheduler) hasRoom(cluster *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) bool {
	if s.ledger == nil || len(spec.Components) > 0 {
		return true
	}
	account := s.ledger.Account(cluster.Name)
	pod, err := simulate.FromRequirements(spec.ReplicaRequirements)
	return err != nil || !account.Known() || account.Room(pod).Total() > 0
}

// wakeWaiting looks again at the bindings without a place that may choose one of the clusters and are helped by it. What
// bindings that ask for the same want to know is found out once.
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

// roomEpoch tells decisions apart between which clusters may have got more room.
func (s *Scheduler) roomEpoch() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

// needOf tells what bindings ask for apart.
func needOf(spec *workv1alpha2.ResourceBindingSpec) string {
	text, err := json.Marshal([]any{spec.ReplicaRequirements, spec.Components})
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
