package rebalance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/slots"
)

// retryAfter is how long a slot waits after a failure.
const retryAfter = 500 * time.Millisecond

// slotMove moves the objects of a slot. handover.Slot decides what is done when; this does it.
type slotMove struct {
	*Mover
	slot      slots.Slot
	from, to  string // the cells that own the slot before and after the change
	order     *handover.Slot
	transfers map[handover.Object]*transfer
	// known is, for each cell, the latest revision of what was read or written there.
	known map[string]int64
	// vanished are the cells in which a listed object was no longer found. Their indexes have not seen that deletion.
	vanished map[string]bool
	// copiesListed means that copies which a former mover has left frozen are in order already.
	copiesListed bool
}

// moveSlot moves a slot and retries what fails, unless another mover has taken over, or a connection was closed: the change opens it again.
func (m *Mover) moveSlot(ctx context.Context, slot slots.Slot) error {
	route := m.Topology.Route(slot)
	from, to := m.Topology.Name(route.Old), m.Topology.Name(route.New)
	s := &slotMove{Mover: m, slot: slot, from: from, to: to, order: handover.NewSlot(from), transfers: map[handover.Object]*transfer{}, known: map[string]int64{}, vanished: map[string]bool{}}
	for {
		err := s.run(ctx)
		switch {
		case err == nil:
			return s.finish(ctx)
		case errors.Is(err, cellstore.ErrFenced), errors.Is(err, errStopped), ctx.Err() != nil, m.disconnected():
			return err
		}
		failures.Inc()
		klog.FromContext(ctx).Error(err, "moving the objects of a slot failed, retrying", "slot", slot)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryAfter):
		}
		s.order.Restart()
	}
}

// disconnected reports whether the connection to one of the cells was closed.
func (m *Mover) disconnected() bool {
	for _, store := range m.Stores {
		if store.Closed() {
			return true
		}
	}
	return false
}

// outcome is the result of an action, and the revision of the object in its old cell.
type outcome struct {
	handover.Result
	revision int64
}

// run takes the actions that are ready, many at once, until there are none. After an error it waits for those under
// way.
func (s *slotMove) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	outcomes := make(chan outcome)
	var waiting []handover.Action
	for running := 0; ; {
		waiting = append(waiting, s.order.Ready()...)
		for ; len(waiting) > 0 && running < s.pace.now(); waiting = waiting[1:] {
			running++
			s.start(ctx, group, waiting[0], outcomes)
		}
		if running == 0 {
			return group.Wait()
		}
		select {
		case o := <-outcomes:
			running--
			s.known[o.Object.Cell] = max(s.known[o.Object.Cell], o.revision)
			s.copiesListed = s.copiesListed || o.Step == handover.List
			if o.Step == handover.Load && o.State.Old == handover.Absent {
				s.vanished[o.Object.Cell] = true
			}
			s.order.Apply(o.Result)
		case <-ctx.Done():
			if err := group.Wait(); err != nil {
				return err
			}
			return ctx.Err()
		}
	}
}

// start takes an action and sends its outcome, unless it fails.
func (s *slotMove) start(ctx context.Context, group *errgroup.Group, action handover.Action, outcomes chan<- outcome) {
	do := s.action(action)
	group.Go(func() error {
		o, err := do(ctx)
		if err != nil {
			return err
		}
		o.Action = action
		select {
		case outcomes <- o:
		case <-ctx.Done():
		}
		return nil
	})
}

// action returns what carries out an action.
func (s *slotMove) action(action handover.Action) func(context.Context) (outcome, error) {
	object := action.Object
	switch action.Step {
	case handover.List:
		return s.list()
	case handover.MarkWork:
		return func(ctx context.Context) (outcome, error) {
			if err := s.markWork(ctx, object); err != nil {
				return outcome{}, fmt.Errorf("marking the Work %s in cell %s: %w", object.Key, object.Cell, err)
			}
			return outcome{}, nil
		}
	}
	t := s.transfers[object]
	if t == nil {
		t = &transfer{m: s.Mover, relative: object.Key, old: side{sharedStore: s.stores[object.Cell]}, new: side{sharedStore: s.stores[s.to]}}
		s.transfers[object] = t
	}
	return func(ctx context.Context) (outcome, error) {
		err := t.take(ctx, action.Step)
		conflict := errors.Is(err, cellstore.ErrConflict)
		if err != nil && !conflict {
			return outcome{}, fmt.Errorf("moving %s from cell %s to cell %s: %w", object.Key, object.Cell, s.to, err)
		}
		return outcome{handover.Result{State: t.state(), Conflict: conflict}, t.old.kv.ModRevision}, nil
	}
}

// list waits for the indexes to have seen what is known of the cells, and returns what they still hold.
func (s *slotMove) list() func(context.Context) (outcome, error) {
	until := s.untilKnown()
	var copies []string
	if !s.copiesListed {
		copies = s.indexes[s.to].inactive(s.slot)
	}
	return func(ctx context.Context) (outcome, error) {
		if err := until(ctx); err != nil {
			return outcome{}, err
		}
		found := s.remaining(s.slot)
		for _, key := range copies {
			// A former mover has not activated this copy. Its original may be gone.
			relative, _ := s.Stores[s.to].Relative(key)
			found = append(found, handover.Object{Cell: s.from, Key: relative})
		}
		return outcome{Result: handover.Result{Found: found}}, nil
	}
}

// untilKnown returns a function that waits for the indexes to have seen what is known now.
func (s *slotMove) untilKnown() func(context.Context) error {
	type seen struct {
		index    *index
		revision int64
	}
	var all []seen
	for cell, revision := range s.known {
		if x := s.indexes[cell]; x != nil {
			all = append(all, seen{x, revision})
		}
	}
	vanished := s.vanished
	s.vanished = map[string]bool{}
	return func(ctx context.Context) error {
		for cell := range vanished {
			if x := s.indexes[cell]; x != nil && x.loses {
				if err := x.catchUp(ctx); err != nil {
					return err
				}
			}
		}
		for _, one := range all {
			if err := one.index.until(ctx, one.revision); err != nil {
				return err
			}
		}
		return nil
	}
}

// finish waits for the indexes to have seen the commits, so that the slot is not looked at again because of them.
func (s *slotMove) finish(ctx context.Context) error {
	if err := s.untilKnown()(ctx); err != nil {
		return err
	}
	s.indexes[s.to].forgetCopies(s.slot)
	s.mu.Lock()
	delete(s.pending, s.slot)
	s.mu.Unlock()
	// What the indexes have not seen yet touches the slot when they see it.
	remaining := s.remaining(s.slot)
	if len(remaining) > 0 {
		s.touch(s.slot)
	}
	if s.Moved != nil && federated(remaining) == 0 {
		s.Moved(s.slot)
	}
	return nil
}

// remaining returns what cells still hold of a slot that they lose.
func (m *Mover) remaining(slot slots.Slot) []handover.Object {
	var found []handover.Object
	for name, x := range m.indexes {
		for _, key := range x.remaining(slot) {
			relative, _ := m.Stores[name].Relative(key)
			found = append(found, handover.Object{Cell: name, Key: relative})
		}
	}
	return found
}

// federated counts the objects that move: Works do not.
func federated(objects []handover.Object) int {
	count := 0
	for _, o := range objects {
		if handover.KindOf(o.Key) != handover.Work {
			count++
		}
	}
	return count
}

// markWork marks a Work as moved, in a transaction of its own: an engine that never saw the mark would go on writing
// to a member.
func (m *Mover) markWork(ctx context.Context, work handover.Object) error {
	s := &side{sharedStore: m.stores[work.Cell]}
	for {
		if err := s.load(ctx, work.Key); err != nil {
			return err
		}
		if s.status == handover.Absent || s.status == handover.Moved {
			return nil
		}
		err := m.write(ctx, handover.MarkWork, s, work.Key, markMoved)
		if !errors.Is(err, cellstore.ErrConflict) { // the engine has written it
			return err
		}
	}
}
