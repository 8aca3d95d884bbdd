package failover

import (
	"slices"
	"time"
)

// Watchdog decides when a cell that does not answer is given up. The zero value never does.
type Watchdog struct {
	// After is how long a cell must not have answered; 0 means that nobody is given up by itself.
	After time.Duration

	silent map[string]time.Time // since when
}

// Sighting is what one look at all cells showed.
type Sighting struct {
	// Answering and Silent are the cells that own slots. A cell answers if its API server or its store does.
	Answering, Silent []string
	// Failed is the number of cells that have been given up already.
	Failed int
}

// See takes what one look has shown and returns the cell to give up, or nothing. It is careful: if several are silent the trouble may
// be ours, and one cell that was lost is enough to deal with.
func (w *Watchdog) See(now time.Time, s Sighting) string {
	if w.silent == nil {
		w.silent = map[string]time.Time{}
	}
	for name := range w.silent {
		if !slices.Contains(s.Silent, name) {
			delete(w.silent, name)
		}
	}
	for _, name := range s.Silent {
		if _, known := w.silent[name]; !known {
			w.silent[name] = now
		}
	}
	if w.After <= 0 || len(s.Silent) != 1 || len(s.Answering) == 0 || s.Failed > 0 {
		return ""
	}
	if now.Sub(w.silent[s.Silent[0]]) < w.After {
		return ""
	}
	return s.Silent[0]
}
