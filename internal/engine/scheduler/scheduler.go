// Package scheduler writes the decisions of package schedule onto bindings: when a decision is due, what it was made
// for, and how it ended.
package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Name is the scheduler that bindings name when they mean this one; naming none means the same.
const Name = "default-scheduler"

// Scheduler decides for the bindings of a cell.
type Scheduler struct {
	cell *cell.Cell
	now  func() time.Time

	mu       sync.Mutex
	outcomes map[cell.Key]Outcome
	snapshot *schedule.Snapshot
	stale    bool // whether a cluster has changed since the snapshot
}

// Outcome is how the last decision about a binding ended.
type Outcome struct {
	// Failure is nil when clusters are chosen.
	Failure *schedule.Failure
	// Generation of the binding that carries the decision.
	Generation int64
	// Affinity is the group of clusters in use.
	Affinity string
	// At is when clusters were last chosen anew; zero if they were found to be chosen already.
	At time.Time
}

// New returns a scheduler for a cell.
func New(c *cell.Cell) *Scheduler {
	s := &Scheduler{cell: c, now: time.Now, outcomes: map[cell.Key]Outcome{}, snapshot: schedule.Compile(nil), stale: true}
	c.Clusters.Subscribe(func(cell.Key, *clusterv1alpha1.Cluster, *clusterv1alpha1.Cluster) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stale = true
	})
	c.SubscribeBindings(func(key cell.Key, _, now *workv1alpha2.ResourceBinding) {
		if now == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.outcomes, key)
		}
	})
	return s
}

// Responsible tells whether the binding is ours to decide about.
func Responsible(binding *workv1alpha2.ResourceBinding) bool {
	if name := binding.Spec.SchedulerName; name != "" && name != Name {
		return false
	}
	suspended := binding.Spec.Suspension != nil && ptr.Deref(binding.Spec.Suspension.Scheduling, false)
	return !suspended && binding.Spec.Placement != nil
}

// Decide chooses clusters if a decision is due. It changes the binding in place: the clusters, and the annotation that
// says which placement they were chosen for. The outcome takes effect with Record, once the binding is written.
func (s *Scheduler) Decide(binding *workv1alpha2.ResourceBinding) Outcome {
	placement, err := json.Marshal(binding.Spec.Placement)
	if err != nil {
		return Outcome{Failure: &schedule.Failure{Reason: names.ReasonSchedulerError, Message: err.Error()}}
	}
	triggered := s.triggered(binding)
	fresh := triggered || binding.Annotations[names.AppliedPlacementAnnotation] != string(placement)
	if !fresh && !s.due(binding) {
		return Outcome{Affinity: binding.Status.SchedulerObservedAffinityName}
	}
	request := schedule.Request{Spec: &binding.Spec, UID: binding.Spec.Resource.UID, Fresh: triggered, Snapshot: s.clusters()}
	if !fresh {
		request.Affinity = binding.Status.SchedulerObservedAffinityName
	}
	result, err := schedule.Plan(request, nil)
	if err != nil {
		failure := &schedule.Failure{Reason: names.ReasonSchedulerError, Message: err.Error()}
		errors.As(err, &failure)
		if failure.ClearsResult() {
			binding.Spec.Clusters = nil
		}
		return Outcome{Failure: failure, Affinity: binding.Status.SchedulerObservedAffinityName}
	}
	outcome := Outcome{Affinity: result.Affinity}
	if fresh || !sameTargets(binding.Spec.Clusters, result.Clusters) {
		outcome.At = s.now()
	}
	if !sameTargets(binding.Spec.Clusters, result.Clusters) {
		binding.Spec.Clusters = result.Clusters
	}
	if binding.Annotations == nil {
		binding.Annotations = map[string]string{}
	}
	binding.Annotations[names.AppliedPlacementAnnotation] = string(placement)
	return outcome
}

// triggered tells whether somebody asked for a decision from scratch since the last one.
func (s *Scheduler) triggered(binding *workv1alpha2.ResourceBinding) bool {
	asked := binding.Spec.RescheduleTriggeredAt
	if asked == nil {
		return false
	}
	last := binding.Status.LastScheduledTime
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome := s.outcomes[cell.Key{Namespace: binding.Namespace, Name: binding.Name}]; !outcome.At.IsZero() && asked.Time.Before(outcome.At) {
		return false // decided since, though the status does not say so yet
	}
	return last == nil || asked.After(last.Time)
}

// due tells whether what changed around the binding asks for another decision. Divided replicas stay where they are
// as long as their number is right and their clusters exist; everything else follows the eligible clusters.
func (s *Scheduler) due(binding *workv1alpha2.ResourceBinding) bool {
	spec := &binding.Spec
	if len(spec.Clusters) == 0 || spec.Replicas <= 0 || len(spec.Components) > 0 || !schedule.Divided(spec.Placement) {
		return true
	}
	total := int32(0)
	for i := range spec.Clusters {
		total += spec.Clusters[i].Replicas
		if cluster := s.cell.Clusters.Get(cell.Key{Name: spec.Clusters[i].Name}); cluster == nil || cluster.DeletionTimestamp != nil {
			return true
		}
	}
	return total != spec.Replicas
}

// clusters returns the clusters as they are now, prepared for decisions.
func (s *Scheduler) clusters() *schedule.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale {
		s.snapshot, s.stale = s.snapshot.Update(s.cell.Clusters.All()), false
	}
	return s.snapshot
}

// Waiting returns the bindings that found no place, and that more room in a cluster may help.
func (s *Scheduler) Waiting() []cell.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waiting []cell.Key
	for key, outcome := range s.outcomes {
		if outcome.Failure != nil {
			waiting = append(waiting, key)
		}
	}
	return waiting
}

// sameTargets compares decisions regardless of their order.
func sameTargets(a, b []workv1alpha2.TargetCluster) bool {
	if len(a) != len(b) {
		return false
	}
	shares := make(map[string]*workv1alpha2.TargetCluster, len(a))
	for i := range a {
		shares[a[i].Name] = &a[i]
	}
	for i := range b {
		was := shares[b[i].Name]
		if was == nil || was.Replicas != b[i].Replicas || !slices.Equal(was.Components, b[i].Components) {
			return false
		}
	}
	return true
}

// Record takes note of an outcome for the binding as it was written.
func (s *Scheduler) Record(binding *workv1alpha2.ResourceBinding, outcome Outcome) {
	key := cell.Key{Namespace: binding.Namespace, Name: binding.Name}
	outcome.Generation = binding.Generation
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome.At.IsZero() {
		outcome.At = s.outcomes[key].At
	}
	s.outcomes[key] = outcome
}

// Last returns the outcome of the last decision about a binding, if there was one.
func (s *Scheduler) Last(key cell.Key) (Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcome, known := s.outcomes[key]
	return outcome, known
}

// Describe names clusters and their shares, for messages.
func Describe(targets []workv1alpha2.TargetCluster) string {
	if len(targets) == 0 {
		return "no cluster"
	}
	const most = 20
	var parts []string
	for i := range targets {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(targets)-most))
			break
		}
		part := targets[i].Name
		if targets[i].Replicas > 0 {
			part += ":" + strconv.Itoa(int(targets[i].Replicas))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// Same tells whether a decision left a binding as it was.
func Same(before, after *workv1alpha2.ResourceBinding) bool {
	return sameTargets(before.Spec.Clusters, after.Spec.Clusters) &&
		before.Annotations[names.AppliedPlacementAnnotation] == after.Annotations[names.AppliedPlacementAnnotation]
}
