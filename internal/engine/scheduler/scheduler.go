// Package scheduler applies the decisions of package schedule to bindings: it determines when a decision is due,
// writes it and records its outcome. Capacity and quota are reserved before a decision is written, so that no two
// decisions use the same.
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

// Name is the scheduler name of bindings for this scheduler. An empty name means the same.
const Name = "default-scheduler"

// Scheduler chooses clusters for the bindings of a cell.
type Scheduler struct {
	cell     *cell.Cell
	recorder *events.Recorder
	guards   []Guard
	queue    *queue.Queue[cell.Key]
	now      func() time.Time
	// changed is called for bindings whose outcome changed.
	changed        func(cell.Key)
	groups         groupLocks
	otherCells     Groups        // may be nil
	ledger         *ledger.Store // may be nil
	profiles       profiles
	plugins        *schedule.Plugins
	emptyWorkloads bool // see Options.EmptyWorkloads
	pods           pods
	reaches        *lru.Cache // placement as JSON → *reach

	mu            sync.Mutex
	outcomes      map[cell.Key]Outcome
	waiting       map[string]map[cell.Key]struct{} // bindings that wait for capacity, by placement as JSON
	waitingUnder  map[cell.Key]string              // the placement under which each binding waits
	snapshot      *schedule.Snapshot
	stale         bool                // a cluster changed after the snapshot was made
	freed         int                 // capacity epoch: incremented when a cluster may have more free capacity
	freedAt       map[string]int      // the capacity epoch in which each cluster last freed capacity
	freedClusters map[string]struct{} // clusters of the next debounced wake-up
	// wakePending is true while a wake-up of waiting bindings is scheduled.
	wakePending bool
}

// Guard admits or refuses decisions by limits other than those of the clusters, for example quotas.
type Guard interface {
	// Admit reserves what a decision needs in addition to the previous one. It returns a failure if that is not
	// available, and an error if it could not be determined. The hold may be nil.
	Admit(ctx context.Context, before, after *workv1alpha2.ResourceBinding) (Hold, *schedule.Failure, error)
}

// Hold is what a guard reserves for a decision until it is written.
type Hold interface {
	// Commit is called after the decision was written.
	Commit(written *workv1alpha2.ResourceBinding)
	// Release is called if the decision was not written.
	Release()
}

// Options configure a scheduler. The zero value is valid.
type Options struct {
	// Guards admit or refuse decisions.
	Guards []Guard
	// Groups knows the workloads of other cells; nil if there are none.
	Groups Groups
	// Ledger holds the reservations of the clusters' capacity. It may be nil.
	Ledger *ledger.Store
	// Profiles are additional SchedulingProfiles. Profiles in the cell take precedence over those of the same name.
	Profiles []*cellplanev1alpha1.SchedulingProfile
	// Plugins are the enabled filters and scores. Nil enables all.
	Plugins *schedule.Plugins
	// EmptyWorkloads propagates a workload with zero replicas to eligible clusters that get no replicas.
	EmptyWorkloads bool
	// Changed is called for bindings whose outcome changed.
	Changed func(cell.Key)
}

// placementCacheSize is the number of compiled placements kept.
const placementCacheSize = 4096

// New returns a scheduler for a cell.
func New(c *cell.Cell, recorder *events.Recorder, options Options) *Scheduler {
	s := &Scheduler{
		cell: c, recorder: recorder, guards: options.Guards, now: time.Now, changed: options.Changed, otherCells: options.Groups, reaches: lru.New(placementCacheSize),
		outcomes: map[cell.Key]Outcome{}, waiting: map[string]map[cell.Key]struct{}{}, waitingUnder: map[cell.Key]string{}, freedAt: map[string]int{}, freedClusters: map[string]struct{}{}, snapshot: schedule.Compile(nil), stale: true,
	}
	s.profiles = profiles{c, options.Profiles}
	s.plugins, s.emptyWorkloads = options.Plugins, options.EmptyWorkloads
	s.pods = pods{c, lru.New(podCacheSize)}
	if options.Ledger != nil {
		s.ledger = options.Ledger
		s.guards = append(s.guards, &reservations{c, options.Ledger, &s.profiles, &s.pods})
		s.ledger.Subscribe(s.capacityFreed)
	}
	s.queue = queue.NewWithPriority("scheduler", minBackoff, maxBackoff, s.priority)
	s.subscribe()
	return s
}

// Responsible reports whether this scheduler schedules the binding. The name of a SchedulingProfile is also
// accepted as a scheduler name.
func (s *Scheduler) Responsible(binding *workv1alpha2.ResourceBinding) bool {
	if name := binding.Spec.SchedulerName; name != "" && name != Name && s.profiles.get(name) == nil {
		return false
	}
	suspended := binding.Spec.Suspension != nil && ptr.Deref(binding.Spec.Suspension.Scheduling, false)
	return !suspended && binding.Spec.Placement != nil
}

// Change is an update of a binding. Place sets its clusters.
type Change struct {
	// Before is nil for a new binding.
	Before, After *workv1alpha2.ResourceBinding
	// TemplateVersion is set on the binding if it is written for another reason. Empty keeps the old value.
	TemplateVersion string
	// Full lists clusters to treat as having no free capacity. If set, the change is made only if other clusters
	// can take the replicas.
	Full []string
}

// Place chooses clusters for a binding if a decision is due and writes the binding once if anything changed. The
// write fails on a conflict. It returns the stored binding.
func (s *Scheduler) Place(ctx context.Context, change Change) (*workv1alpha2.ResourceBinding, error) {
	after := change.After
	if !s.Responsible(after) {
		return s.keep(ctx, change)
	}
	defer s.groups.lock(after)()

	// 1. Decide and reserve what the decision needs. Repeat if the capacity was taken in the meantime.
	start := time.Now()
	d, holds, err := s.decideAdmitted(ctx, &change)
	if err != nil {
		observeAttempt(resultError, reconcileSchedule, start)
		return nil, err
	}
	if d.Failure != nil && len(change.Full) > 0 {
		return change.Before, nil
	}
	d.apply(after)
	if err := d.mark(change.Before, after); err != nil {
		holds.release()
		return nil, err
	}

	// 2. Write the binding.
	written, err := s.write(ctx, change)
	if err != nil {
		holds.release()
		return nil, err
	}
	holds.commit(written)
	s.record(written, d)
	s.recordEvent(written, d, change.Before)
	d.observe(start)
	return written, nil
}

// keep writes a binding whose clusters are not chosen here: it is suspended or another scheduler's. What its clusters use is guarded nevertheless.
func (s *Scheduler) keep(ctx context.Context, change Change) (*workv1alpha2.ResourceBinding, error) {
	if change.Before == nil || len(change.After.Spec.Clusters) == 0 {
		return s.write(ctx, change)
	}
	var d decision
	holds, err := s.admit(ctx, change.Before, change.After, &d)
	if outdated := (&outdatedError{}); err != nil && !errors.As(err, &outdated) {
		return nil, err
	}
	if err := d.mark(change.Before, change.After); err != nil {
		holds.release()
		return nil, err
	}
	written, err := s.write(ctx, change)
	if err != nil {
		holds.release()
		return nil, err
	}
	holds.commit(written)
	if d.Failure != nil {
		for _, about := range events.Both(s.cell, written) {
			s.recorder.Failed(about, "schedule", names.EventScheduleBindingFailed, d.Failure.Message)
		}
	}
	return written, nil
}

// maxDecisions is how often a decision is repeated because other bindings were faster. Then it is retried
// after contentionBackoff: capacity may be left, and no event will report it.
const (
	maxDecisions      = 8
	contentionBackoff = 500 * time.Millisecond
)

// decideAdmitted returns a decision that all guards admit, or a failure.
func (s *Scheduler) decideAdmitted(ctx context.Context, change *Change) (*decision, holds, error) {
	before, after := change.Before, change.After
	for n := 1; ; n++ {
		start := time.Now()
		elsewhere, err := s.elsewhere(ctx, after)
		if err != nil {
			return nil, nil, err
		}
		d := s.decide(after, change.Full, elsewhere)
		algorithmDuration.WithLabelValues(planStep).Observe(time.Since(start).Seconds())
		held, err := s.admit(ctx, before, after, &d)
		outdated := &outdatedError{}
		switch {
		case err == nil:
			return &d, held, nil
		case !errors.As(err, &outdated):
			return nil, nil, err
		case n == maxDecisions:
			d.refuse(&schedule.Failure{Reason: names.ReasonUnschedulable, Message: outdated.Error() + ", retrying."})
			d.retryAfter = contentionBackoff
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

// same compares everything but the status.
func same(a, b *workv1alpha2.ResourceBinding) bool {
	return apiequality.Semantic.DeepEqual(&a.Spec, &b.Spec) && apiequality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		apiequality.Semantic.DeepEqual(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) &&
		apiequality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// decision is a scheduling decision for one binding.
type decision struct {
	Outcome
	placement string // as JSON
	made      bool   // clusters were chosen, possibly the same as before
	refused   bool   // a guard refused what the binding asks for
	clears    bool   // the existing clusters are removed
	scaled    bool   // it was due because the number of replicas has changed
	repeated  bool   // the failure is that of the last decision
	targets   []workv1alpha2.TargetCluster
}

// apply sets the clusters and the applied placement of a binding.
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

// mark records on the binding whether the guards have admitted its requirements.
func (d *decision) mark(before, after *workv1alpha2.ResourceBinding) error {
	if !d.refused {
		admitted(after)
		return nil
	}
	return hold(before, after)
}

// refuse turns a decision into a failure that leaves the clusters unchanged.
func (d *decision) refuse(failure *schedule.Failure) {
	d.Failure, d.made, d.clears, d.At, d.retryAfter, d.snapshot = failure, false, false, time.Time{}, 0, nil
}

// decide chooses clusters if a decision is due.
func (s *Scheduler) decide(binding *workv1alpha2.ResourceBinding, full []string, elsewhere groupsElsewhere) decision {
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
	d.scaled = !fresh && len(binding.Spec.Clusters) > 0 && schedule.Divided(binding.Spec.Placement) && placed(binding.Spec.Clusters) != binding.Spec.Replicas
	request := schedule.Request{
		Spec: &binding.Spec, UID: binding.Spec.Resource.UID, Fresh: triggered, Snapshot: s.clusters(), Profile: profile, Plugins: s.plugins, EmptyWorkloads: s.emptyWorkloads,
		Progress: schedule.Progress{Now: s.now(), MovedAt: last.movedAt, Ready: readyReplicas(binding)},
	}
	request.AffinityClusters, request.AntiAffinityClusters = s.groupClusters(binding, elsewhere)
	if !fresh {
		request.Affinity = d.Affinity
	}
	if s.ledger != nil {
		free, growth := s.ledger.Estimators(s.pods.of(binding))
		request.Estimators, request.Growth = []schedule.Estimator{free}, growth
	}
	if len(full) > 0 {
		request.Estimators = append(request.Estimators, func(cluster *clusterv1alpha1.Cluster, _ *workv1alpha2.ResourceBindingSpec) int32 {
			if slices.Contains(full, cluster.Name) {
				return 0
			}
			return schedule.Unknown
		})
	}
	d.input, d.freed = inputOf(&request, d.placement), s.capacityEpoch()
	if !fresh && !paced(profile) && d.input == last.input && d.freed == last.freed && request.Snapshot == last.snapshot && sameTargets(last.targets, binding.Spec.Clusters) {
		d.Failure, d.repeated = last.Failure, true
		return d // no input changed since the last decision
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
	d.Outcome.targets, d.retryAfter, d.Notes = result.Clusters, result.Again, result.Notes
	d.stranded = result.Stranded > 0
	if d.movedAt = last.movedAt; result.Moved > 0 {
		d.movedAt = s.now()
	}
	if fresh || !sameTargets(binding.Spec.Clusters, result.Clusters) {
		d.At = s.now()
	}
	return d
}

// inputOf returns a hash of the inputs of a decision, except for the clusters.
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

// triggered reports whether rescheduling was requested after the last decision.
func (s *Scheduler) triggered(binding *workv1alpha2.ResourceBinding) bool {
	asked := binding.Spec.RescheduleTriggeredAt
	if asked == nil {
		return false
	}
	last := binding.Status.LastScheduledTime
	if outcome, _ := s.Last(cell.Key{Namespace: binding.Namespace, Name: binding.Name}); !outcome.At.IsZero() && asked.Time.Before(outcome.At) {
		return false // already decided, the status is not updated yet
	}
	return last == nil || asked.After(last.Time)
}

// due reports whether a change of clusters or replicas requires another decision. Divided replicas stay where they
// are while their sum is right and their clusters exist. Other bindings are decided again whenever the eligible
// clusters may have changed.
func (s *Scheduler) due(binding *workv1alpha2.ResourceBinding) bool {
	spec := &binding.Spec
	if len(spec.Clusters) == 0 || spec.Replicas <= 0 || len(spec.Components) > 0 || !schedule.Divided(spec.Placement) {
		return true
	}
	for i := range spec.Clusters {
		if cluster := s.cell.Clusters.Get(cell.Key{Name: spec.Clusters[i].Name}); cluster == nil || cluster.DeletionTimestamp != nil {
			return true
		}
	}
	return placed(spec.Clusters) != spec.Replicas
}

// placed returns the sum of the replicas in clusters.
func placed(targets []workv1alpha2.TargetCluster) int32 {
	total := int32(0)
	for i := range targets {
		total += targets[i].Replicas
	}
	return total
}

// clusters returns a snapshot of the current clusters.
func (s *Scheduler) clusters() *schedule.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale {
		s.snapshot, s.stale = s.snapshot.Update(s.cell.Clusters.All(), s.cell.ClusterProfiles.All()...), false
	}
	return s.snapshot
}

// sameTargets compares target clusters regardless of order.
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
