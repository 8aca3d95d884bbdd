package backup

import (
	"testing"
	"time"
)

// TestPending follows changes that wait for a backup cell.
func TestPending(t *testing.T) {
	now := time.Unix(100, 0)
	p := newPair("cell-a", nil, 1, 10)
	p.now = func() time.Time { return now }
	p.add("a", []byte("1"))
	now = now.Add(time.Second)
	p.add("a", []byte("2"))
	p.add("b", nil)
	p.advance(12)

	taken, err := p.take()
	if err != nil || taken.through != 12 || len(taken.changes) != 2 || taken.hurried {
		t.Fatalf("took %+v (%v)", taken, err)
	}
	if a := taken.changes["a"]; string(a.value) != "2" || !a.seen.Equal(time.Unix(100, 0)) {
		t.Errorf("a is %q since %v; want the newest value since the oldest change", a.value, a.seen)
	}
	// Changes that are being written are still pending.
	if s := p.state(); s.pending != 2 || !s.oldest.Equal(time.Unix(100, 0)) {
		t.Errorf("%d keys are pending since %v while they are written", s.pending, s.oldest)
	}

	// Changes that could not be written are pending again, but do not replace newer ones.
	now = now.Add(time.Second)
	p.add("a", []byte("3"))
	if s := p.state(); s.pending != 2 {
		t.Errorf("%d keys are pending, one of them again", s.pending)
	}
	p.restore(taken)
	taken, _ = p.take()
	if a := taken.changes["a"]; string(a.value) != "3" || !a.seen.Equal(time.Unix(100, 0)) {
		t.Errorf("a is %q since %v", a.value, a.seen)
	}
	if b, waiting := taken.changes["b"]; !waiting || b.value != nil {
		t.Errorf("the deletion of b was forgotten: %+v", taken)
	}
	p.setWritten(12)
	if s := p.state(); s.pending != 0 || !s.oldest.IsZero() || s.written != 12 {
		t.Errorf("%d keys are pending since %v after all were written", s.pending, s.oldest)
	}
}

// TestHurry checks that a change that somebody waits for ends the pause, with the revision that includes it, until it is
// written.
func TestHurry(t *testing.T) {
	p := newPair("cell-a", nil, 1, 10)
	p.setDue()
	p.add("a", []byte("1"))
	if taken, err := p.take(); err != nil || taken.hurried || taken.through != 10 {
		t.Errorf("before the revision is known: %+v (%v)", taken, err)
	}
	if len(p.urgent) != 0 {
		t.Error("the pause ends before the revision is known")
	}
	p.advance(12)
	if len(p.urgent) != 1 {
		t.Error("the pause does not end")
	}
	taken, err := p.take()
	if err != nil || !taken.hurried || taken.through != 12 {
		t.Errorf("took %+v (%v)", taken, err)
	}
	p.restore(taken)
	if again, err := p.take(); err != nil || !again.hurried {
		t.Errorf("after a failure: %+v (%v)", again, err)
	}
	p.advance(13)
	if taken, err := p.take(); err != nil || taken.hurried {
		t.Errorf("nobody waits for %+v (%v)", taken, err)
	}
}

// TestIdle checks that nothing is written to a backup cell without changes, unless that proves something.
func TestIdle(t *testing.T) {
	p := newPair("cell-a", nil, 1, 10) // writing to this backup cell would panic
	p.expect(proof{revision: 21, at: time.Unix(100, 0)})
	p.advance(20)
	if carried, err := p.write(t.Context()); carried || err != nil {
		t.Errorf("wrote %t, %v", carried, err)
	}
	if s := p.state(); s.written != 20 {
		t.Errorf("everything up to %d is said to be written", s.written)
	}
}

// TestTooManyPending checks that an unreachable backup cell costs bounded memory.
func TestTooManyPending(t *testing.T) {
	p := newPair("cell-a", nil, 1, 10)
	for i := range maxPending + 10 {
		p.add(string(rune('a'+i%26))+time.Duration(i).String(), nil)
	}
	if s := p.state(); s.pending > maxPending {
		t.Errorf("%d keys are pending", s.pending)
	}
	if _, err := p.take(); err == nil {
		t.Error("changes were dropped without an error")
	}
}
