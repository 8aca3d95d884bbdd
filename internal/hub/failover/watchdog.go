package failover

import (
	"fmt"
	"time"
)

// Watchdog decides when an unreachable cell is declared failed. The zero value never does.
type Watchdog struct {
	// After is how long a cell must have been unreachable; 0 disables automatic failover.
	After time.Duration

	// unreachable is the only cell that has not answered, since a time.
	unreachable string
	since       time.Time
}

// Sighting is the result of one probe of all cells.
type Sighting struct {
	// Answering and Silent are the reachable and unreachable cells that own slots. A cell answers if its API server
	// or its store does.
	Answering, Silent []string
	// Failed is the number of cells that have been declared failed.
	Failed int
	// Reports are those of the live gateways.
	Reports []Report
}

// Verdict is the decision after a probe.
type Verdict struct {
	// Fail is the cell to declare failed, or nothing.
	Fail string
	// Blocked is a cell that has been unreachable for long enough and is not declared failed, and Why says why.
	Blocked, Why string
}

// See takes the result of a probe. If several cells are unreachable the fault may be on this side, so only time in
// which all others answered counts. It declares no second cell failed, and none that gateways reach: they would go
// on writing to it.
func (w *Watchdog) See(now time.Time, s Sighting) Verdict {
	if len(s.Silent) != 1 || len(s.Answering) == 0 {
		w.unreachable = ""
		return Verdict{}
	}
	if w.unreachable != s.Silent[0] {
		w.unreachable, w.since = s.Silent[0], now
	}
	if w.After <= 0 || now.Sub(w.since) < w.After {
		return Verdict{}
	}
	if s.Failed > 0 {
		return Verdict{Blocked: w.unreachable, Why: "another cell has failed; only one cell is failed over by itself"}
	}
	if others, dead := reaching(w.unreachable, s.Reports); !dead {
		return Verdict{Blocked: w.unreachable, Why: fmt.Sprintf("the hub manager does not reach the cell, but %d of %d gateways do not confirm that: %s", len(others), len(s.Reports), someOf(others))}
	}
	return Verdict{Fail: w.unreachable}
}
