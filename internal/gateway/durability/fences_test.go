package durability

import (
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/fleet"
)

// TestFences asks a cell until it refuses, not more often than once in a while, and not while another request asks.
func TestFences(t *testing.T) {
	var f fences
	a, b := &fleet.Upstream{}, &fleet.Upstream{}
	now, asked, refuses := time.Unix(1e9, 0), 0, false
	ask := func(cell *fleet.Upstream) bool {
		return f.fenced(cell, func() time.Time { return now }, func() bool {
			asked++
			if f.fenced(cell, func() time.Time { return now }, func() bool { t.Error("two requests ask at once"); return true }) {
				t.Error("the cell counts as fenced while it is asked")
			}
			return refuses
		})
	}
	if first, second := ask(a), ask(a); first || second || asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	refuses = true
	if ask(a) || asked != 1 {
		t.Error("the cell was asked again at once")
	}
	now = now.Add(unfencedFor)
	if !ask(a) || asked != 2 {
		t.Error("the cell refuses, and that is not known")
	}
	refuses = false
	now = now.Add(time.Hour)
	if !ask(a) || asked != 2 {
		t.Error("the cell has refused once, and was asked again")
	}
	if ask(b) {
		t.Error("another cell counts as fenced")
	}
	f.keep(map[string]*fleet.Upstream{"b": b})
	if ask(a) {
		t.Error("a cell that has left is remembered")
	}
}
