package failover

import "time"

// Watchdog decides when a cell that does not answer is given up. The zero value never does.
type Watchdog struct {
	// After is how long a cell must not have answered; 0 means that nobody is given up by itself.
	After time.Duration

	// silent is the cell that alone did not answer, again and again since a time.
	silent string
	since  time.Time
}

// Sighting is what one look at all cells showed.
type Sighting struct {
	// Answering and Silent are the cells that own slots. A cell answers if its API server or its store does.
	Answering, Silent []string
	// Failed is the number of cells that have been given up already.
	Failed int
}

// See takes what one look has shown and returns the cell to give up, or nothing. It is careful: if several are silent the trouble may
// be ours, and may end in the middle of a look, so that only the time counts in which the others answered. And one cell that was lost is
// enough to deal with.
func (w *Watchdog) See(now time.Time, s Sighting) string {
	if len(s.Silent) != 1 || len(s.Answering) == 0 {
		w.silent = ""
		return ""
	}
	if w.silent != s.Silent[0] {
		w.silent, w.since = s.Silent[0], now
	}
	if w.After <= 0 || s.Failed > 0 || now.Sub(w.since) < w.After {
		return ""
	}
	return w.silent
}
