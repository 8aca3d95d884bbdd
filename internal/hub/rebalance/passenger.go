package rebalance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
)

// passenger is an object on its way.
type passenger struct {
	m *Mover
	// relative is its key without the prefix of either store.
	relative string
	old, new side
	verified bool
}

// side is what one of the two cells holds of an object.
type side struct {
	*gathered
	kv       cellstore.KV
	standing Standing // of the kv
}

func (s *side) load(ctx context.Context, relative string) (err error) {
	if s.kv, err = s.read(ctx, s.store.Key(relative)); err == nil {
		s.standing, err = standingOf(s.kv)
	}
	return err
}

func standingOf(kv cellstore.KV) (Standing, error) {
	if kv.ModRevision == 0 {
		return Absent, nil
	}
	if !bytes.Contains(kv.Value, []byte(names.RebalanceStatusLabel)) {
		return Active, nil
	}
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return 0, err
	}
	switch object.Labels[names.RebalanceStatusLabel] {
	case names.RebalanceMigrating:
		return Frozen, nil
	case names.RebalanceMigrated:
		return Left, nil
	default:
		return Active, nil
	}
}

// load reads what both cells hold.
func (p *passenger) load(ctx context.Context) error {
	p.verified = false
	if err := p.old.load(ctx, p.relative); err != nil {
		return err
	}
	return p.new.load(ctx, p.relative)
}

func (p *passenger) situation() Situation {
	return Situation{
		Old: p.old.standing, New: p.new.standing,
		Equal: bytes.Equal(p.old.kv.Value, p.new.kv.Value), Verified: p.verified,
	}
}

// advance takes the object as far as allowed. If something has changed meanwhile it looks again.
func (p *passenger) advance(ctx context.Context, allowed func(Step) bool) error {
	for {
		step := p.situation().Next()
		if step == Done || !allowed(step) {
			return nil
		}
		err := p.take(ctx, step)
		if errors.Is(err, cellstore.ErrConflict) {
			// Somebody was faster. It cannot be a client once the object is frozen, except with a request that hides what it is about.
			if err := p.load(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		steps.WithLabelValues(step.String()).Inc()
	}
}

// take does one step.
func (p *passenger) take(ctx context.Context, step Step) error {
	switch step {
	case Freeze:
		return p.mark(ctx, step, &p.old, cellstore.Mark{Labels: status(names.RebalanceMigrating)})
	case Copy:
		p.verified = false
		return p.write(ctx, step, &p.new, p.old.kv.Value)
	case Verify:
		return p.verify(ctx)
	case Commit:
		return p.mark(ctx, step, &p.old, cellstore.Mark{
			Labels:      status(names.RebalanceMigrated),
			Annotations: map[string]string{names.CopiedAtAnnotation: position(&p.new)},
		})
	case Activate:
		mark := cellstore.Mark{Labels: status(""), Annotations: map[string]string{names.CopiedAtAnnotation: ""}}
		if p.old.kv.ModRevision != 0 { // otherwise it has never been anywhere else
			mark.Annotations[names.MovedFromAnnotation] = position(&p.old)
		}
		return p.mark(ctx, step, &p.new, mark)
	case Discard:
		return p.mark(ctx, step, &p.old, cellstore.Mark{
			Labels:      status(names.RebalanceMigrated),
			Annotations: map[string]string{names.CopiedAtAnnotation: position(&p.new)},
		})
	default:
		return nil
	}
}

func status(value string) map[string]string {
	return map[string]string{names.RebalanceStatusLabel: value}
}

// position names a version of an object in a cell.
func position(s *side) string { return fmt.Sprintf("%s/%d", s.store.Cell, s.kv.ModRevision) }

// mark changes labels and annotations of what a side holds.
func (p *passenger) mark(ctx context.Context, step Step, s *side, mark cellstore.Mark) error {
	value, err := cellstore.WithMark(s.kv.Value, mark)
	if err != nil {
		return err
	}
	return p.write(ctx, step, s, value)
}

// write stores a value on a side if that has not changed since it was read.
func (p *passenger) write(ctx context.Context, step Step, s *side, value []byte) error {
	store := s.gathered.write
	if step.inCompany() {
		store = s.writeTogether
	}
	key := s.store.Key(p.relative)
	revision, err := store(ctx, put{key, value, s.kv.ModRevision})
	if err != nil {
		return err
	}
	s.kv, s.standing = cellstore.KV{Key: key, Value: value, ModRevision: revision}, step.leaves()
	return p.m.written(step, s.store.Cell, key)
}

// verify reads the copy through the new cell's API server.
func (p *passenger) verify(ctx context.Context) error {
	object, err := cellstore.Parse(p.new.kv.Value)
	if err != nil {
		return err
	}
	if err := p.m.Verify(ctx, p.old.store.Cell, p.new.store.Cell, object, p.new.kv); err != nil {
		return err
	}
	p.verified = true
	return nil
}

func (p *passenger) isBinding() bool { return strings.HasPrefix(p.relative, bindingsPrefix) }

// bindingsPrefix begins the keys of bindings.
const bindingsPrefix = "work.karmada.io/resourcebindings/"

// errStopped is what a hook stops a run with, as a crash would.
var errStopped = errors.New("stopped")

func (m *Mover) written(step Step, cell, key string) error {
	if m.Written == nil {
		return nil
	}
	return m.Written(step, cell, key)
}
