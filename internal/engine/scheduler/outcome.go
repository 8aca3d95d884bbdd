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
	// Notes are sentences about what was decided for a reason that the placement does not give.
	Notes []string

	// Of moves at a pace: when the last one was, and after how long the next one is due.
	movedAt time.Time
	again   time.Duration
	// stranded tells that replicas would move if there was room for them elsewhere.
	stranded bool

	// What the decision was made from, and what came out.
	input    uint64
	freed    int
	snapshot *schedule.Snapshot
	targets  []workv1alpha2.TargetCluster
}

// Last returns the outcome of the last decision about a binding, if there was one.
func (s *Scheduler) Last(key cell.Key) (Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcome, known := s.outcomes[key]
	return outcome, known
}

// Refused returns the bindings that found no place for a reason.
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

// record takes note of a decision for the binding as it was written.
func (s *Scheduler) record(binding *workv1alpha2.ResourceBinding, d *decision) {
	key := cell.Key{Namespace: binding.Namespace, Name: binding.Name}
	outcome := d.Outcome
	outcome.Generation = binding.Generation
	s.mu.Lock()
	last, known := s.outcomes[key]
	if outcome.At.IsZero() {
		outcome.At = last.At
	}
	if outcome.snapshot == nil { // nothing was decided
		outcome.Notes, outcome.movedAt, outcome.stranded = last.Notes, last.movedAt, last.stranded
		outcome.input, outcome.freed, outcome.snapshot, outcome.targets = last.input, last.freed, last.snapshot, last.targets
	}
	s.outcomes[key] = outcome
	waits := outcome.Failure != nil || outcome.stranded
	s.setWaiting(key, d.placement, waits)
	if waits && d.input != 0 {
		s.missed(d.freed)
	}
	s.mu.Unlock()
	if s.changed != nil && known && (message(last.Failure) != message(outcome.Failure) || last.Affinity != outcome.Affinity || !last.At.Equal(outcome.At)) {
		s.changed(key)
	}
}

// setWaiting files a binding that waits for room under its placement: all of it, or a part that is to move. It is called
// with the lock held.
func (s *Scheduler) setWaiting(key cell.Key, placement string, waits bool) {
	if before, filed := s.filed[key]; filed && (!waits || before != placement) {
		delete(s.filed, key)
		delete(s.waiting[before], key)
		if len(s.waiting[before]) == 0 {
			delete(s.waiting, before)
		}
	}
	if !waits {
		return
	}
	s.filed[key] = placement
	if s.waiting[placement] == nil {
		s.waiting[placement] = map[cell.Key]struct{}{}
	}
	s.waiting[placement][key] = struct{}{}
}

// forget forgets a binding that is gone.
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

// tell tells users how a decision ended.
func (s *Scheduler) tell(binding *workv1alpha2.ResourceBinding, d *decision, before *workv1alpha2.ResourceBinding) {
	about := events.OfBinding(binding)
	if d.Failure != nil {
		s.recorder.Failed(about, "schedule", names.EventScheduleBindingFailed, d.Failure.Message)
		return
	}
	s.recorder.Succeeded(about, "schedule", names.EventScheduleBindingSucceed, strings.Join(append([]string{"placed in " + Describe(binding.Spec.Clusters)}, d.Notes...), "; "),
		!d.At.IsZero() && (before == nil || before.Generation != binding.Generation || before.ResourceVersion != binding.ResourceVersion))
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

// holds are what the guards keep for one decision.
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

// admit asks the guards about a decision. One that refuses turns it into a failure, which leaves the clusters as they
// are.
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
			return nil, nil
		}
		if hold != nil {
			held = append(held, hold)
		}
	}
	return held, nil
}
