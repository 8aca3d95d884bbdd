// Package scheduler puts the decisions of package schedule into effect: when a decision is due, what it was made for,
// and how it ended. What a decision needs is held before it is written, so that no two count on the same.
package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Name is the scheduler that bindings name when they mean this one; naming none means the same.
const Name = "default-scheduler"

// Scheduler decides for the bindings of a cell.
type Scheduler struct {
	cell     *cell.Cell
	recorder *events.Recorder
	guards   []Guard
	queue    *queue.Queue[cell.Key]
	now      func() time.Time
	// changed is told of bindings about which something new is known that the binding does not say.
	changed  func(cell.Key)
	groups   groupLocks
	ledger   *ledger.Store // nil where there is none
	profiles profiles
	plugins  *schedule.Plugins
	empty    bool // see Options.EmptyWorkloads
	pods     pods
	reaches  *lru.Cache // placement as JSON → reach

	mu       sync.Mutex
	outcomes map[cell.Key]Outcome
	waiting  map[string]map[cell.Key]struct{} // by placement, as JSON
	filed    map[cell.Key]string              // the placement that one is waiting under
	snapshot *schedule.Snapshot
	stale    bool                // whether a cluster has changed since the snapshot
	freed    int                 // counts how often clusters may have got more room
	freedAt  map[string]int      // when that was last for each, by the same count
	roomier  map[string]struct{} // clusters of which nobody who waits has been told yet
	// gathering tells that those who wait will be told in a moment.
	gathering bool
}

// Guard has the last word on decisions: it knows of bounds that the clusters themselves do not tell.
type Guard interface {
	// Admit holds what a decision needs on top of the one before. The failure is why it cannot be had; an error is why
	// nobody can tell. The hold may be nil.
	Admit(ctx context.Context, before, after *workv1alpha2.ResourceBinding) (Hold, *schedule.Failure, error)
}

// Hold is what a guard keeps for a decision until it is written.
type Hold interface {
	// Commit says that the decision is written.
	Commit(written *workv1alpha2.ResourceBinding)
	// Release gives back what was held: the decision was not written.
	Release()
}

// Options of a scheduler; the zero value will do.
type Options struct {
	// Guards have the last word on decisions.
	Guards []Guard
	// Ledger knows what of the clusters' room is promised; nil means nobody does.
	Ledger *ledger.Store
	// Profiles are known besides those in the cell, which come first where names are equal.
	Profiles []*cellplanev1alpha1.SchedulingProfile
	// Plugins are the filters and scores that take part in decisions; nil means all of them.
	Plugins *schedule.Plugins
	// EmptyWorkloads has workloads go without replicas to clusters that were chosen and get none.
	EmptyWorkloads bool
	// Changed is told of bindings whose outcome is another than before.
	Changed func(cell.Key)
}

// knownPlacements is how many different placements are kept compiled.
const knownPlacements = 4096

// New returns a scheduler for a cell.
func New(c *cell.Cell, recorder *events.Recorder, options Options) *Scheduler {
	s := &Scheduler{
		cell: c, recorder: recorder, guards: options.Guards, now: time.Now, changed: options.Changed, reaches: lru.New(knownPlacements),
		outcomes: map[cell.Key]Outcome{}, waiting: map[string]map[cell.Key]struct{}{}, filed: map[cell.Key]string{}, freedAt: map[string]int{}, roomier: map[string]struct{}{}, snapshot: schedule.Compile(nil), stale: true,
	}
	s.profiles = profiles{c, options.Profiles}
	s.plugins, s.empty = options.Plugins, options.EmptyWorkloads
	s.pods = pods{c, lru.New(rememberedPods)}
	if options.Ledger != nil {
		s.ledger = options.Ledger
		s.guards = append(s.guards, &promises{c, options.Ledger, &s.profiles, &s.pods})
		s.ledger.Subscribe(s.roomFreed)
	}
	s.queue = queue.NewWithPriority("scheduler", firstPause, longestPause, s.priority)
	s.subscribe()
	return s
}

// Responsible tells whether the binding is ours to decide about. A SchedulingProfile is a scheduler of ours, too.
func (s *Scheduler) Responsible(binding *workv1alpha2.ResourceBinding) bool {
	if name := binding.Spec.SchedulerName; name != "" && name != Name && s.profiles.get(name) == nil {
		return false
	}
	suspended := binding.Spec.Suspension != nil && ptr.Deref(binding.Spec.Suspension.Scheduling, false)
	return !suspended && binding.Spec.Placement != nil
}

// Change is a binding as it is and as it is to become, but for the clusters, which Place chooses.
type Change struct {
	// Before is nil for a new binding.
	Before, After *workv1alpha2.ResourceBinding
	// TemplateVersion is noted on the binding when anything else is written; empty leaves the old one.
	TemplateVersion string
	// Full are clusters that have no room for more replicas, whatever they say. A change that takes replicas off them is
	// made only if there is room for these elsewhere.
	Full []string
}

// Place chooses clusters for a binding if that is due and writes it if anything has changed: all of it in one write,
// which fails if somebody else was faster. It returns the binding as it is then.
func (s *Scheduler) Place(ctx context.Context, change Change) (*workv1alpha2.ResourceBinding, error) {
	after := change.After
	if !s.Responsible(after) {
		return s.write(ctx, change)
	}
	defer s.groups.lock(after)()

	// 1. Decide, and hold what the decision needs. What has gone in the meantime is asked for elsewhere.
	start := time.Now()
	d, holds, err := s.settle(ctx, &change)
	if err != nil {
		attempts.WithLabelValues(resultError).Inc()
		return nil, err
	}
	if d.Failure != nil && len(change.Full) > 0 {
		return change.Before, nil
	}
	d.apply(after)

	// 2. Write it down.
	written, err := s.write(ctx, change)
	if err != nil {
		holds.release()
		return nil, err
	}
	holds.commit(written)
	s.record(written, d)
	s.tell(written, d, change.Before)
	attempts.WithLabelValues(resultOf(&d.Outcome)).Inc()
	endToEndDuration.Observe(time.Since(start).Seconds())
	return written, nil
}

// mostDecisions is how often a decision is made anew because others were faster. After that it is their turn for a while:
// there may be room still, and nothing else would tell.
const (
	mostDecisions  = 8
	pauseForOthers = 500 * time.Millisecond
)

// settle makes a decision that the guards agree to.
func (s *Scheduler) settle(ctx context.Context, change *Change) (*decision, holds, error) {
	before, after := change.Before, change.After
	for n := 1; ; n++ {
		start := time.Now()
		d := s.decide(after, change.Full)
		algorithmDuration.Observe(time.Since(start).Seconds())
		held, err := s.admit(ctx, before, after, &d)
		outdated := &outdatedError{}
		switch {
		case err == nil:
			return &d, held, nil
		case !errors.As(err, &outdated):
			return nil, nil, err
		case n == mostDecisions:
			d.refuse(&schedule.Failure{Reason: names.ReasonUnschedulable, Message: outdated.Error() + "; others are faster."})
			d.again = pauseForOthers
			return &d, nil, nil
		}
	}
}

func (s *Scheduler) write(ctx context.Context, change Change) (*workv1alpha2.ResourceBinding, error) {
	if change.Before == nil {
		return s.cell.CreateBinding(ctx, change.After)
	}
	if same(change.Before, change.After) {
		return change.Before, nil
	}
	if change.TemplateVersion != "" {
		change.After.Spec.Resource.ResourceVersion = change.TemplateVersion
	}
	return s.cell.UpdateBinding(ctx, change.After)
}

// same compares all that is written, but the status.
func same(a, b *workv1alpha2.ResourceBinding) bool {
	return apiequality.Semantic.DeepEqual(&a.Spec, &b.Spec) && apiequality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		apiequality.Semantic.DeepEqual(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) &&
		apiequality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// decision is what becomes of a binding.
type decision struct {
	Outcome
	placement string // as JSON
	made      bool   // whether clusters were chosen, perhaps the same ones
	clears    bool   // whether earlier choices are taken back
	targets   []workv1alpha2.TargetCluster
}

// apply writes a decision onto a binding: the clusters, and the placement they were chosen for.
func (d *decision) apply(binding *workv1alpha2.ResourceBinding) {
	if d.clears {
		binding.Spec.Clusters = nil
	}
	if !d.made {
		return
	}
	if !sameTargets(binding.Spec.Clusters, d.targets) {
		binding.Spec.Clusters = d.targets
	}
	if binding.Annotations == nil {
		binding.Annotations = map[string]string{}
	}
	binding.Annotations[names.AppliedPlacementAnnotation] = d.placement
}

// refuse turns a decision into a failure that leaves the clusters as they are.
func (d *decision) refuse(failure *schedule.Failure) {
	d.Failure, d.made, d.clears, d.At, d.again, d.snapshot = failure, false, false, time.Time{}, 0, nil
}

// decide chooses clusters if a decision is due.
func (s *Scheduler) decide(binding *workv1alpha2.ResourceBinding, full []string) decision {
	key := cell.Key{Namespace: binding.Namespace, Name: binding.Name}
	placement, err := json.Marshal(binding.Spec.Placement)
	if err != nil {
		return decision{Outcome: Outcome{Failure: &schedule.Failure{Reason: names.ReasonSchedulerError, Message: err.Error()}}}
	}
	last, _ := s.Last(key)
	d := decision{placement: string(placement), Outcome: Outcome{Affinity: last.Affinity}}
	if d.Affinity == "" {
		d.Affinity = binding.Status.SchedulerObservedAffinityName
	}
	triggered := s.triggered(binding)
	fresh := triggered || binding.Annotations[names.AppliedPlacementAnnotation] != d.placement
	profile, failure := s.profile(binding)
	if failure != nil {
		d.Failure = failure
		return d
	}
	if !fresh && !paced(profile) && !s.due(binding) {
		return d
	}
	request := schedule.Request{
		Spec: &binding.Spec, UID: binding.Spec.Resource.UID, Fresh: triggered, Snapshot: s.clusters(), Profile: profile, Plugins: s.plugins, EmptyWorkloads: s.empty,
		Progress: schedule.Progress{Now: s.now(), MovedAt: last.movedAt, Ready: readyReplicas(binding)},
	}
	request.AffinityClusters, request.AntiAffinityClusters = s.groupClusters(binding)
	if !fresh {
		request.Affinity = d.Affinity
	}
	if s.ledger != nil {
		room, growth := s.ledger.Estimators(s.pods.of(binding))
		request.Estimators, request.Growth = []schedule.Estimator{room}, growth
	}
	if len(full) > 0 {
		request.Estimators = append(request.Estimators, func(cluster *clusterv1alpha1.Cluster, _ *workv1alpha2.ResourceBindingSpec) int32 {
			if slices.Contains(full, cluster.Name) {
				return 0
			}
			return schedule.Unknown
		})
	}
	d.input, d.freed = inputOf(&request, d.placement), s.roomEpoch()
	if !fresh && !paced(profile) && d.input == last.input && d.freed == last.freed && request.Snapshot == last.snapshot && sameTargets(last.targets, binding.Spec.Clusters) {
		d.Failure = last.Failure
		return d // nothing has changed since
	}
	d.snapshot = request.Snapshot
	result, err := schedule.Plan(request, nil)
	if err != nil {
		d.Failure = &schedule.Failure{Reason: names.ReasonSchedulerError, Message: err.Error()}
		errors.As(err, &d.Failure)
		d.clears = d.Failure.ClearsResult()
		return d
	}
	d.made, d.targets, d.Affinity = true, result.Clusters, result.Affinity
	d.Outcome.targets, d.again, d.Notes = result.Clusters, result.Again, result.Notes
	d.stranded = result.Stranded > 0
	if d.movedAt = last.movedAt; result.Moved > 0 {
		d.movedAt = s.now()
	}
	if fresh || !sameTargets(binding.Spec.Clusters, result.Clusters) {
		d.At = s.now()
	}
	return d
}

// inputOf condenses what a decision is made from, but for the clusters.
func inputOf(request *schedule.Request, placement string) uint64 {
	spec := request.Spec
	rest, err := json.Marshal([]any{
		spec.Replicas, spec.ReplicaRequirements, spec.Components, spec.GracefulEvictionTasks, spec.WorkloadAffinityGroups,
		request.Profile, request.Affinity, request.AffinityClusters, request.AntiAffinityClusters,
	})
	if err != nil {
		return 0
	}
	return xxhash.Sum64(append(rest, placement...))
}

// triggered tells whether somebody asked for a decision from scratch since the last one.
func (s *Scheduler) triggered(binding *workv1alpha2.ResourceBinding) bool {
	asked := binding.Spec.RescheduleTriggeredAt
	if asked == nil {
		return false
	}
	last := binding.Status.LastScheduledTime
	if outcome, _ := s.Last(cell.Key{Namespace: binding.Namespace, Name: binding.Name}); !outcome.At.IsZero() && asked.Time.Before(outcome.At) {
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
		s.snapshot, s.stale = s.snapshot.Update(s.cell.Clusters.All(), s.cell.ClusterProfiles.All()...), false
	}
	return s.snapshot
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
