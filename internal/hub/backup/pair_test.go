package backup

import (
	"testing"
	"time"
)

// TestPending tells what becomes of changes that wait for a keeper.
func TestPending(t *testing.T) {
	now := time.Unix(100, 0)
	p := newPair("cell-a", nil, 1, 10)
	p.now = func() time.Time { return now }
	p.note("a", []byte("1"))
	now = now.Add(time.Second)
	p.note("a", []byte("2"))
	p.note("b", nil)
	p.reach(12)

	taken, through, err := p.take()
	if err != nil || through != 12 || len(taken) != 2 {
		t.Fatalf("took %v through %d (%v)", taken, through, err)
	}
	if a := taken["a"]; string(a.value) != "2" || !a.seen.Equal(time.Unix(100, 0)) {
		t.Errorf("a is %q since %v; want the newest value since the oldest change", a.value, a.seen)
	}
	// What is on its way has not arrived: a keeper that hangs is not up to date.
	if s := p.standing(); s.pending != 2 || !s.oldest.Equal(time.Unix(100, 0)) {
		t.Errorf("%d keys are pending since %v while they are written", s.pending, s.oldest)
	}

	// What could not be written comes back, but not over what is newer.
	now = now.Add(time.Second)
	p.note("a", []byte("3"))
	if s := p.standing(); s.pending != 2 {
		t.Errorf("%d keys are pending, one of them again", s.pending)
	}
	p.giveBack(taken)
	taken, _, _ = p.take()
	if a := taken["a"]; string(a.value) != "3" || !a.seen.Equal(time.Unix(100, 0)) {
		t.Errorf("a is %q since %v", a.value, a.seen)
	}
	if b, waiting := taken["b"]; !waiting || b.value != nil {
		t.Errorf("the deletion of b was forgotten: %v", taken)
	}
	p.reached(12)
	if s := p.standing(); s.pending != 0 || !s.oldest.IsZero() || s.written != 12 {
		t.Errorf("%d keys are pending since %v after all were written", s.pending, s.oldest)
	}
}

// TestIdle shows that a keeper is left alone while nothing changes that it keeps.
func TestIdle(t *testing.T) {
	now := time.Unix(100, 0)
	p := newPair("cell-a", nil, 1, 10) // nothing can be written to this keeper
	p.now = func() time.Time { return now }
	p.told = now
	now = now.Add(idleInterval - 1)
	p.reach(20)
	if carried, err := p.write(t.Context()); carried || err != nil {
		t.Errorf("wrote %t, %v", carried, err)
	}
	if s := p.standing(); s.written != 20 {
		t.Errorf("everything up to %d is said to be written", s.written)
	}
}

// TestTooManyPending shows that a keeper that is away for long costs bounded memory.
func TestTooManyPending(t *testing.T) {
	p := newPair("cell-a", nil, 1, 10)
	for i := range maxPending + 10 {
		p.note(string(rune('a'+i%26))+time.Duration(i).String(), nil)
	}
	if s := p.standing(); s.pending > maxPending {
		t.Errorf("%d keys are pending", s.pending)
	}
	if _, _, err := p.take(); err == nil {
		t.Error("changes were forgotten, and nobody is told to compare anew")
	}
}
