package failover

import "time"

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
}

// See takes the result of a probe and returns the cell to declare failed, or nothing. If several cells are
// unreachable the fault may be on this side, so only time in which all others answered counts. It declares no second
// cell failed.
func (w *Watchdog) See(now time.Time, s Sighting) string {
	if len(s.Silent) != 1 || len(s.Answering) == 0 {
		w.unreachable = ""
		return ""
	}
	if w.unreachable != s.Silent[0] {
		w.unreachable, w.since = s.Silent[0], now
	}
	if w.After <= 0 || s.Failed > 0 || now.Sub(w.since) < w.After {
		return ""
	}
	return w.unreachable
}
