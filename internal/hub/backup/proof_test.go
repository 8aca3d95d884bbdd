package backup

import (
	"errors"
	"testing"
	"time"
)

// TestProof checks that only what a backup cell has confirmed counts, and from the moment at which the source was read.
func TestProof(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start
	p := newPair("cell-a", nil, 1, 10)
	p.now = func() time.Time { return now }
	proven := func(want time.Time) {
		t.Helper()
		if got := p.state().proven; !got.Equal(want) {
			t.Errorf("proven at %v, want %v", got, want)
		}
	}
	proven(time.Time{})
	p.expect(proof{revision: 20, at: start})
	p.expect(proof{revision: 20, at: start.Add(2 * time.Second)})
	p.expect(proof{revision: 25, at: start.Add(4 * time.Second)})
	if p.provable(19) || !p.provable(20) {
		t.Error("revision 20 would prove something, and 19 nothing")
	}
	p.setWritten(30) // without a request to the backup cell
	proven(time.Time{})
	p.confirm(19)
	proven(time.Time{})
	p.confirm(24)
	proven(start.Add(2 * time.Second))
	p.confirm(25)
	proven(start.Add(4 * time.Second))
	for i := range 3 * maxProofs {
		p.expect(proof{revision: int64(30 + i), at: start})
	}
	if len(p.proofs) > maxProofs {
		t.Errorf("%d proofs wait", len(p.proofs))
	}
}

// TestSilence checks since when a backup cell counts as one that does not answer.
func TestSilence(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start
	p := newPair("cell-a", nil, 1, 10)
	p.now = func() time.Time { return now }
	silent := func(what string, want time.Time) {
		t.Helper()
		if got := p.state().silent; !got.Equal(want) {
			t.Errorf("%s: silent since %v, want %v", what, got, want)
		}
	}
	silent("nothing was sent", time.Time{})
	ended := p.attempt()
	now = start.Add(hangs)
	silent("it takes a while", time.Time{})
	now = start.Add(hangs + 1)
	silent("it takes too long", start)
	ended(errors.New("timeout"))
	silent("it failed", start)
	now = now.Add(time.Minute)
	p.attempt()(errors.New("timeout"))
	silent("it failed again", start)
	p.attempt()(nil)
	silent("it answered", time.Time{})
}
