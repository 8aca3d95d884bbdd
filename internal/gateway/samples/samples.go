// Package samples remembers for some minutes which revisions the stores of the cells have had.
//
// A watch that begins at the version of an object has to read the other cells from a revision that they had before the object was
// written. A reading is such a revision if it ended before another reading began which found the object's cell below the object's
// revision.
package samples

import (
	"slices"
	"sync"
	"time"
)

// Reading is the revision of the store of a cell. It shows everything that was stored before the reading began, and nothing that was stored
// after it ended.
type Reading struct {
	Begun, Ended time.Time
	// Epoch is that of the topology by which the gateway routed.
	Epoch    int64
	Revision uint64
}

// History is what was read of the cells. They are known by their numbers, which are never used again.
type History struct {
	keep time.Duration

	mu    sync.Mutex
	cells map[uint16][]Reading // oldest first
}

// New returns a History that keeps readings for some time.
func New(keep time.Duration) *History {
	return &History{keep: keep, cells: map[uint16][]Reading{}}
}

// Add adds a reading of a cell, and forgets old ones of all cells.
func (h *History) Add(cell uint16, r Reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cells[cell] = append(h.cells[cell], r)
	for other, readings := range h.cells {
		old := 0
		for old < len(readings) && r.Ended.Sub(readings[old].Ended) > h.keep {
			old++
		}
		switch {
		case old == len(readings):
			delete(h.cells, other)
		case old > 0:
			h.cells[other] = slices.Delete(readings, 0, old)
		}
	}
}

// Bounds returns revisions that the cells of an epoch had before a revision was written in one of them, and the epoch. It is false if the
// readings do not reach back so far. The function cells returns the numbers of the cells of an epoch, none if it is not remembered.
//
// What is stored at the revision was written after every reading began that found its cell below it. Readings of other cells that ended
// before such a reading began are bounds. The latest one gives the tightest bounds. If a cell that has just joined was not read before
// it, one of the epoch before will do, which did not have that cell: how a position continues in a cell that joins is recorded with the
// topology.
func (h *History) Bounds(cell uint16, revision uint64, cells func(epoch int64) []uint16) (epoch int64, bounds map[uint16]uint64, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tried := map[int64]bool{}
	for _, r := range slices.Backward(h.cells[cell]) {
		if r.Revision >= revision || tried[r.Epoch] {
			continue // an earlier reading of an epoch has no more bounds than a later one
		}
		tried[r.Epoch] = true
		if bounds, found := h.before(r.Begun, cell, cells(r.Epoch)); found {
			return r.Epoch, bounds, true
		}
	}
	return 0, nil, false
}

// before returns revisions that all of the cells but one had before a time.
func (h *History) before(t time.Time, except uint16, cells []uint16) (bounds map[uint16]uint64, found bool) {
	bounds = map[uint16]uint64{}
	for _, cell := range cells {
		if cell == except {
			continue
		}
		if bounds[cell], found = h.at(cell, t); !found {
			return nil, false
		}
	}
	return bounds, len(cells) > 0
}

// At returns a revision that a cell had before a time.
func (h *History) At(cell uint16, before time.Time) (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at(cell, before)
}

// at is At with the lock held.
func (h *History) at(cell uint16, before time.Time) (uint64, bool) {
	for _, r := range slices.Backward(h.cells[cell]) {
		if !r.Ended.After(before) {
			return r.Revision, true
		}
	}
	return 0, false
}
