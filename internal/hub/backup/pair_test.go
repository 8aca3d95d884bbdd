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

	taken, through, err := p.take()
	if err != nil || through != 12 || len(taken) != 2 {
		t.Fatalf("took %v through %d (%v)", taken, through, err)
	}
	if a := taken["a"]; string(a.value) != "2" || !a.seen.Equal(time.Unix(100, 0)) {
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
	taken, _, _ = p.take()
	if a := taken["a"]; string(a.value) != "3" || !a.seen.Equal(time.Unix(100, 0)) {
		t.Errorf("a is %q since %v", a.value, a.seen)
	}
	if b, waiting := taken["b"]; !waiting || b.value != nil {
		t.Errorf("the deletion of b was forgotten: %v", taken)
	}
	p.setWritten(12)
	if s := p.state(); s.pending != 0 || !s.oldest.IsZero() || s.written != 12 {
		t.Errorf("%d keys are pending since %v after all were written", s.pending, s.oldest)
	}
}

// TestIdle checks that nothing is written to a backup cell without changes.
func TestIdle(t *testing.T) {
	now := time.Unix(100, 0)
	p := newPair("cell-a", nil, 1, 10) // writing to this backup cell would panic
	p.now = func() time.Time { return now }
	p.progressAt = now
	now = now.Add(idleInterval - 1)
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
	if _, _, err := p.take(); err == nil {
		t.Error("changes were dropped without an error")
	}
}
