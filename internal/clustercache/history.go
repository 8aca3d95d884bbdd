package clustercache

import "sync/atomic"

// history has the latest events, numbered from one, in a ring that grows while it is pinned.
type history struct {
	usual, pinned int
	ring          []record
	// first is the oldest event.
	first uint64
	last  atomic.Uint64
}

// record is an event: one entry replaced another; either may be missing.
type record struct {
	before, after uint32
	// contested is set if other members have an object of the same name, or had one recently.
	contested bool
}

// trimStep is how many events are removed at most for each one added, so that no writer waits long after a pin is released.
const trimStep = 8

func (h *history) init(usual, pinned int) {
	h.usual, h.pinned, h.first = usual, pinned, 1
	h.ring = make([]record, 64)
}

func (h *history) len() int { return int(h.last.Load() + 1 - h.first) }

// retains reports whether the state after an event can still be read.
func (h *history) retains(n uint64) bool { return n+1 >= h.first }

func (h *history) at(n uint64) record { return h.ring[n&uint64(len(h.ring)-1)] }

// add appends an event and returns its number.
func (h *history) add(r record) uint64 {
	n := h.last.Load() + 1
	if int(n+1-h.first) > len(h.ring) {
		h.resize(2 * len(h.ring))
	}
	h.ring[n&uint64(len(h.ring)-1)] = r
	h.last.Store(n)
	return n
}

// trim removes the events beyond the capacity, and reports each entry that is no longer visible at any version.
func (h *history) trim(pinned uint64, forget func(entry uint32)) {
	for range trimStep {
		length := h.len()
		if length <= h.usual || pinned < h.first && length <= h.pinned {
			break
		}
		r := h.at(h.first)
		h.first++
		if r.before != 0 {
			forget(r.before)
		}
	}
	if len(h.ring) > 64 && len(h.ring) > 4*h.usual && 4*h.len() < len(h.ring) {
		h.resize(len(h.ring) / 2)
	}
}

func (h *history) resize(size int) {
	ring := make([]record, size)
	for n := h.first; n <= h.last.Load(); n++ {
		ring[n&uint64(size-1)] = h.at(n)
	}
	h.ring = ring
}

// pins are the versions that are being read.
type pins struct {
	counts map[uint64]int
	lowest uint64
}

func (p *pins) add(n uint64) {
	if p.counts == nil {
		p.counts = map[uint64]int{}
	}
	if len(p.counts) == 0 || n < p.lowest {
		p.lowest = n
	}
	p.counts[n]++
}

func (p *pins) remove(n uint64) {
	p.counts[n]--
	if p.counts[n] > 0 {
		return
	}
	delete(p.counts, n)
	if n != p.lowest {
		return
	}
	p.lowest = never
	for other := range p.counts {
		p.lowest = min(p.lowest, other)
	}
}

// min returns the lowest version that is being read.
func (p *pins) min() uint64 {
	if len(p.counts) == 0 {
		return never
	}
	return p.lowest
}
