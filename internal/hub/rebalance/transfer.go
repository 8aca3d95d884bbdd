package rebalance

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
)

// transfer carries out the steps of one object.
type transfer struct {
	m *Mover
	// relative is its key without the prefix of either store.
	relative string
	old, new side
	verified bool
}

// side is what one of the two cells holds of an object.
type side struct {
	*sharedStore
	kv     cellstore.KV
	status handover.Status // of the kv
}

func (s *side) load(ctx context.Context, relative string) (err error) {
	if s.kv, err = s.read(ctx, s.store.Key(relative)); err == nil {
		s.status, err = statusOf(s.kv)
	}
	return err
}

func statusOf(kv cellstore.KV) (handover.Status, error) {
	if kv.ModRevision == 0 {
		return handover.Absent, nil
	}
	if !bytes.Contains(kv.Value, []byte(names.RebalanceStatusLabel)) {
		return handover.Active, nil
	}
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return 0, err
	}
	switch object.Labels[names.RebalanceStatusLabel] {
	case names.RebalanceMigrating:
		return handover.Frozen, nil
	case names.RebalanceMigrated:
		return handover.Moved, nil
	default:
		return handover.Active, nil
	}
}

func (t *transfer) state() handover.State {
	return handover.State{
		Old: t.old.status, New: t.new.status,
		Equal: bytes.Equal(t.old.kv.Value, t.new.kv.Value), Verified: t.verified,
	}
}

// take does one step. It returns cellstore.ErrConflict if the object has changed since it was loaded. Once it is
// frozen no client can have done that, except by a scale request, in which the label does not show.
func (t *transfer) take(ctx context.Context, step handover.Step) error {
	err := t.do(ctx, step)
	if err == nil && step != handover.Load {
		steps.WithLabelValues(step.String()).Inc()
	}
	return err
}

func (t *transfer) do(ctx context.Context, step handover.Step) error {
	switch step {
	case handover.Load:
		t.verified = false
		if err := t.old.load(ctx, t.relative); err != nil {
			return err
		}
		return t.new.load(ctx, t.relative)
	case handover.Freeze:
		return t.m.write(ctx, step, &t.old, t.relative, marked(cellstore.Mark{Labels: status(names.RebalanceMigrating)}))
	case handover.Copy:
		t.verified = false
		if err := t.new.store.Admits(ctx, t.old.store); err != nil {
			return err
		}
		return t.m.write(ctx, step, &t.new, t.relative, func([]byte) ([]byte, error) { return t.old.kv.Value, nil })
	case handover.Verify:
		return t.verify(ctx)
	case handover.Commit, handover.Discard:
		return t.m.write(ctx, step, &t.old, t.relative, marked(cellstore.Mark{
			Labels:      status(names.RebalanceMigrated),
			Annotations: map[string]string{names.CopiedAtAnnotation: position(&t.new)},
		}))
	case handover.Activate:
		mark := cellstore.Mark{Labels: status(""), Annotations: map[string]string{names.CopiedAtAnnotation: ""}}
		if t.old.kv.ModRevision != 0 { // otherwise this cell is the only one that has had it
			mark.Annotations[names.MovedFromAnnotation] = position(&t.old)
		}
		return t.m.write(ctx, step, &t.new, t.relative, marked(mark))
	default:
		return fmt.Errorf("%s is no step of an object", step)
	}
}

func status(value string) map[string]string {
	return map[string]string{names.RebalanceStatusLabel: value}
}

// position names a version of an object in a cell.
func position(s *side) string { return fmt.Sprintf("%s/%d", s.store.Cell, s.kv.ModRevision) }

// marked returns an edit that changes labels and annotations.
func marked(mark cellstore.Mark) func([]byte) ([]byte, error) {
	return func(value []byte) ([]byte, error) { return cellstore.WithMark(value, mark) }
}

var markMoved = marked(cellstore.Mark{Labels: status(names.RebalanceMigrated)})

// write stores an edited value on a side if that has not changed since it was read.
func (m *Mover) write(ctx context.Context, step handover.Step, s *side, relative string, edit func([]byte) ([]byte, error)) error {
	value, err := edit(s.kv.Value)
	if err != nil {
		return err
	}
	store := s.sharedStore.write
	if step.SharesRevision() {
		store = s.writeShared
	}
	key := s.store.Key(relative)
	revision, err := store(ctx, put{key, value, s.kv.ModRevision})
	if err != nil {
		return err
	}
	s.kv, s.status = cellstore.KV{Key: key, Value: value, ModRevision: revision}, step.Result()
	if m.Written == nil {
		return nil
	}
	return m.Written(step, s.store.Cell, key)
}

// verify reads the copy through the new cell's API server.
func (t *transfer) verify(ctx context.Context) error {
	object, err := cellstore.Parse(t.new.kv.Value)
	if err != nil {
		return err
	}
	if err := t.m.Verify(ctx, t.old.store.Cell, t.new.store.Cell, object, t.new.kv); err != nil {
		return err
	}
	t.verified = true
	return nil
}

// errStopped is what a hook stops a run with, as a crash would.
var errStopped = errors.New("stopped")
