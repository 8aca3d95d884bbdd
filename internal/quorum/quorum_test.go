package quorum

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/slots"
)

// cells parses "a b+ c- d!": joining, leaving, failed.
func cells(text string) []slots.Cell {
	var all []slots.Cell
	for word := range strings.FieldsSeq(text) {
		cell := slots.Cell{Name: strings.TrimRight(word, "+-!"), Weight: 1}
		switch word[len(word)-1] {
		case '+':
			cell.State = slots.In
		case '-':
			cell.State = slots.Out
		case '!':
			cell.State = slots.Failed
		}
		all = append(all, cell)
	}
	return all
}

func TestVoters(t *testing.T) {
	for topology, want := range map[string]string{
		"a":          "a",
		"a b":        "a b hub",
		"a b c":      "a b c",
		"a b c d":    "a b c d hub",
		"a b! c":     "a c hub",
		"a b+ c-":    "a b c",
		"a b c d! e": "a b c e hub",
	} {
		voters := Voters(cells(topology))
		if got := strings.TrimSpace(strings.Replace(strings.Join(voters, " ")+" ", "  ", " hub", 1)); got != want && !(slices.Contains(voters, Hub) && got+" hub" == want) {
			t.Errorf("the voters of %q are %q, want %q", topology, voters, want)
		}
		if len(voters)%2 == 0 {
			t.Errorf("%q has an even number of voters", topology)
		}
	}
}

// TestRaised lists when a failover may go on. Pending cells have failed and nobody has taken over yet; those with a * have nevertheless
// raised their floor.
func TestRaised(t *testing.T) {
	for _, test := range []struct {
		topology, inForce, pending string
		want                       bool
	}{
		{"a b!", "a b", "b", true},
		{"a b c!", "a b c", "c", true},
		{"a b! c!", "a b c", "b c", false}, // two of three at once: they could confirm each other
		{"a b! c!", "a b c", "b* c", true},
		{"a b! c!", "a c", "c", true}, // b was taken over before
		{"a b c! d!", "a b c d", "c d", true},
		{"a b c! d! e!", "a b c d e", "c d e", false},
		{"a b c! d! e!", "a b c d e", "c* d* e", true},
		{"a b c! d! e! f!", "a b c d e f", "c* d* e f", true},
		{"a b! c! d! e!", "a b c d e", "b* c d* e", false}, // b and d may have failed before c and e
		{"a b! c+", "a b", "b", true},
		{"a b! c! d+", "a b c", "b c", false}, // d was no voter
		{"a b! c! d+", "a b c d", "b c", true},
		{"a+ b!", "b", "b", false}, // the only voter has failed
		{"a+ b!", "a b", "b", true},
		{"a- b!", "a b", "b", true},
		{"a- b!", "b", "b", false}, // a joined after the last topology in force, and is leaving again
		{"a b- c!", "a b c", "c", true},
		{"a b! c-", "a b c", "b", true},
		{"a b! c+", "", "b", true}, // unknown
		{"a- b!", "", "b", false},
		{"a b", "a b", "", true},
	} {
		t.Run(test.topology+", "+test.inForce+", "+test.pending, func(t *testing.T) {
			var pending []string
			reached := map[string]bool{}
			for word := range strings.FieldsSeq(test.pending) {
				name := strings.TrimSuffix(word, "*")
				pending, reached[name] = append(pending, name), name != word
			}
			raised := func(cell string) bool { return !slices.Contains(pending, cell) || reached[cell] }
			var inForce []string
			if test.inForce != "" {
				inForce = strings.Fields(test.inForce)
			}
			if got := Raised(cells(test.topology), inForce, pending, raised); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestLease(t *testing.T) {
	start := time.Now()
	at := func(ms int) Instant { return At(start.Add(time.Duration(ms) * time.Millisecond)) }
	voters := Voters(cells("a b c"))
	var lease Lease
	held := func(ms int, epoch int64, want bool) {
		t.Helper()
		if got := lease.Held(at(ms), time.Second, epoch, voters); got != want {
			t.Errorf("held at %d ms at epoch %d: %t", ms, epoch, got)
		}
	}
	held(0, 5, false)
	lease.Confirm("a", 5, at(0))
	held(10, 5, false)
	lease.Confirm("b", 5, at(100))
	held(200, 5, true)
	held(200, 4, false) // below the floor
	held(200, 6, true)
	held(1000, 5, false) // the older of two confirmations counts
	lease.Confirm("c", 5, at(300))
	held(1000, 5, true)
	held(1100, 5, false)
	// What was confirmed lasts after the floor has risen, and not longer.
	lease.Confirm("a", 6, at(500))
	lease.Confirm("b", 6, at(600))
	held(999, 5, true)
	held(1100, 5, false)
	held(1499, 6, true)
	if !lease.Outdated(5, voters) || lease.Outdated(6, voters) {
		t.Error("a majority has a floor above 5, and none above 6")
	}
	// Answers that overtake each other.
	lease.Confirm("a", 5, at(400))
	held(1499, 6, true)
	lease.Confirm("c", 6, at(300)) // the same time as the last
	if lease.voters["c"].floor != 5 {
		t.Error("an answer that is not newer was taken")
	}
	// A cell that had failed is opened again, at an epoch below the closed floor.
	lease.Confirm("b", 1<<62, at(700))
	lease.Confirm("b", 7, at(800))
	held(1400, 6, false)
	held(1400, 7, true)
}

// TestElapsed covers a wall clock that is set back or forth, and a monotonic clock that stood still.
func TestElapsed(t *testing.T) {
	now := time.Now()
	since := At(now)
	for what, test := range map[string]struct {
		monotonic, wall, want time.Duration
	}{
		"both run":             {time.Second, time.Second, time.Second},
		"the wall is set back": {time.Second, -time.Hour, time.Second},
		"the wall is set on":   {time.Second, time.Hour, time.Hour},
		"suspended":            {0, time.Minute, time.Minute},
	} {
		if got := Elapsed(since, Instant{since.Monotonic + test.monotonic, since.Wall.Add(test.wall)}); got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
	if got := Elapsed(since, At(now.Add(time.Second))); got != time.Second {
		t.Errorf("a second later: %v", got)
	}
}

// TestWaitCoversDrift checks the margin: a waiting clock that runs 5 % fast against a lease whose clock runs 5 % slow.
func TestWaitCoversDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(MaxLength)).Draw(t, "length"))
		if waited, lasts := float64(Wait(length))/1.05, float64(length)/0.95; waited < lasts {
			t.Fatalf("waits for %v, and the lease lasts for %v", waited, lasts)
		}
	})
}
