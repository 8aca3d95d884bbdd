package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Outcome is the result of the last decision for a binding.
type Outcome struct {
	// Failure is nil if clusters were chosen.
	Failure *schedule.Failure
	// Generation of the binding that holds the decision.
	Generation int64
	// Affinity is the name of the cluster affinity in use.
	Affinity string
	// At is when the clusters were last chosen, or confirmed for a changed binding.
	At time.Time
	// Notes explain parts of the decision that do not follow from the placement.
	Notes []string

	// For paced moves: the time of the last move and the delay until the next.
	movedAt    time.Time
	retryAfter time.Duration
	// stranded means that replicas would move if other clusters had capacity for them.
	stranded bool

	// Inputs and result of the decision.
	input    uint64
	freed    int
	snapshot *schedule.Snapshot
	targets  []workv1alpha2.TargetCluster
}

// Last returns the outcome of the last decision for a binding, if there was one.
func (s *Scheduler) Last(key cell.Key) (Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcome, known := s.outcomes[key]
	return outcome, known
}

// Refused returns the unschedulable bindings whose last failure has the given reason.
func (s *Scheduler) Refused(reason string) []cell.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var refused []cell.Key
	for _, keys := range s.waiting {
		for key := range keys {
			if failure := s.outcomes[key].Failure; failure != nil && failure.Reason == reason {
				refused = append(refused, key)
			}
		}
	}
	return refused
}

// record stores the outcome of a decision for the written binding. An attempt that found nothing to do in an older state of the binding, beside one
// that has changed it, is not recorded.
func (s *Scheduler) record(binding *workv1alpha2.ResourceBinding, d *decision) {
	key := cell.Key{Namespace: binding.Namespace, Name: binding.Name}
	outcome := d.Outcome
	outcome.Generation = binding.Generation
	s.mu.Lock()
	last, known := s.outcomes[key]
	if known && outcome.Generation < last.Generation {
		s.mu.Unlock()
		return
	}
	switch {
	case !outcome.At.IsZero():
	case d.made && outcome.Generation != max(last.Generation, binding.Status.SchedulerObservedGeneration):
		outcome.At = s.now() // confirmed; the status is written for the generation anyway
	default:
		outcome.At = last.At
	}
	if !d.made && known {
		outcome.Affinity = last.Affinity // this attempt may have begun before the last one was recorded
	}
	if outcome.snapshot == nil { // no decision was made
		outcome.Notes, outcome.movedAt, outcome.stranded = last.Notes, last.movedAt, last.stranded
		outcome.input, outcome.freed, outcome.snapshot, outcome.targets = last.input, last.freed, last.snapshot, last.targets
	}
	s.outcomes[key] = outcome
	waits := outcome.Failure != nil || outcome.stranded
	s.setWaiting(key, d.placement, waits)
	if waits && d.input != 0 {
		s.wakeMissed(d.freed)
	}
	s.mu.Unlock()
	// Others see the binding before its generation is recorded here, and may have reported the one before.
	behind := outcome.Generation != last.Generation && outcome.Generation != binding.Status.SchedulerObservedGeneration
	news := known && (message(last.Failure) != message(outcome.Failure) || last.Affinity != outcome.Affinity || !last.At.Equal(outcome.At))
	if s.changed != nil && (behind || news) {
		s.changed(key)
	}
}

// setWaiting adds or removes a binding that waits for capacity, for all of its replicas or for those to be moved.
// The caller holds the lock.
func (s *Scheduler) setWaiting(key cell.Key, placement string, waits bool) {
	if before, ok := s.waitingUnder[key]; ok && (!waits || before != placement) {
		delete(s.waitingUnder, key)
		delete(s.waiting[before], key)
		if len(s.waiting[before]) == 0 {
			delete(s.waiting, before)
		}
	}
	if !waits {
		return
	}
	s.waitingUnder[key] = placement
	if s.waiting[placement] == nil {
		s.waiting[placement] = map[cell.Key]struct{}{}
	}
	s.waiting[placement][key] = struct{}{}
}

// forget drops the state of a deleted binding.
func (s *Scheduler) forget(key cell.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.outcomes, key)
	s.setWaiting(key, "", false)
}

func message(failure *schedule.Failure) string {
	if failure == nil {
		return ""
	}
	return failure.Reason + failure.Message
}

// recordEvent reports the result of a decision as an event.
func (s *Scheduler) recordEvent(binding *workv1alpha2.ResourceBinding, d *decision, before *workv1alpha2.ResourceBinding) {
	message := strings.Join(append([]string{"placed in " + Describe(binding.Spec.Clusters)}, d.Notes...), "; ")
	done := !d.At.IsZero() && (before == nil || before.Generation != binding.Generation || before.ResourceVersion != binding.ResourceVersion)
	if d.Failure == nil {
		s.recorder.Succeeded(events.OfBinding(binding), "schedule", names.EventScheduleBindingSucceed, message, done)
		s.recorder.Also(events.OfTemplate(s.cell.TemplateOf(binding)), "schedule", names.EventScheduleBindingSucceed, message, done)
		return
	}
	for _, about := range events.Both(s.cell, binding) {
		s.recorder.Failed(about, "schedule", names.EventScheduleBindingFailed, d.Failure.Message)
	}
}

// Describe lists clusters and their replicas for messages.
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

// holds are the holds of all guards for one decision.
type holds []Hold

func (h holds) commit(written *workv1alpha2.ResourceBinding) {
	for _, hold := range h {
		hold.Commit(written)
	}
}

func (h holds) release() {
	for _, hold := range h {
		hold.Release()
	}
}

// admit passes a decision to the guards. A refusal turns it into a failure, which leaves the clusters unchanged.
func (s *Scheduler) admit(ctx context.Context, before, after *workv1alpha2.ResourceBinding, d *decision) (holds, error) {
	if len(s.guards) == 0 {
		return nil, nil
	}
	planned := after.DeepCopy()
	d.apply(planned)
	var held holds
	for _, guard := range s.guards {
		hold, failure, err := guard.Admit(ctx, before, planned)
		if err != nil {
			held.release()
			return nil, err
		}
		if failure != nil {
			held.release()
			d.refuse(failure)
			d.refused = true
			return nil, nil
		}
		if hold != nil {
			held = append(held, hold)
		}
	}
	return held, nil
}
