package samples

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBounds writes to three cells while readings begin and end in any order, and the third one joins and leaves. A bound is never above
// the revision that a cell had when the object was written. Cells that are not in the epoch of the bounds had joined after that: what they
// had stored before does not matter.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keep, joining = 100 * time.Second, 2
		h, now := New(keep), time.Unix(1000, 0)
		revisions := [3]uint64{1, 1, 1}
		type write struct {
			cell     int
			epoch    int64
			revision uint64
			all      [3]uint64
		}
		var writes []write
		type under struct {
			begun    time.Time
			epoch    int64
			revision uint64
			seen     bool
		}
		var reads [3]*under
		epoch, joined := int64(1), map[int64]bool{}
		cells := func(epoch int64) []uint16 {
			if joined[epoch] {
				return []uint16{0, 1, 2}
			}
			return []uint16{0, 1}
		}
		draw := func(t *rapid.T) int { return int(rapid.SampledFrom(cells(epoch)).Draw(t, "cell")) }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				cell := draw(t)
				revisions[cell]++
				writes = append(writes, write{cell, epoch, revisions[cell], revisions})
			},
			"time": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second) },
			"change": func(*rapid.T) {
				epoch++
				joined[epoch] = !joined[epoch-1]
			},
			"read": func(t *rapid.T) {
				cell := draw(t)
				switch r := reads[cell]; {
				case r == nil:
					now = now.Add(time.Nanosecond)
					reads[cell] = &under{begun: now, epoch: epoch}
				case !r.seen:
					r.revision, r.seen = revisions[cell], true
				default:
					now = now.Add(time.Nanosecond)
					h.Add(uint16(cell), Reading{Begun: r.begun, Ended: now, Epoch: r.epoch, Revision: r.revision})
					reads[cell] = nil
				}
			},
			"": func(t *rapid.T) {
				for _, w := range writes {
					of, bounds, ok := h.Bounds(uint16(w.cell), w.revision, cells)
					if !ok {
						continue
					}
					if of > w.epoch || len(bounds) != len(cells(of))-1 {
						t.Fatalf("the bounds %v of epoch %d do not fit revision %d of cell %d, written in epoch %d", bounds, of, w.revision, w.cell, w.epoch)
					}
					for cell, bound := range bounds {
						if bound > w.all[cell] {
							t.Fatalf("the bound of cell %d is %d, and it was at %d when revision %d was written", cell, bound, w.all[cell], w.revision)
						}
					}
				}
			},
		})
	})
}

// TestBoundsWhileACellJoins begins at an object that was written before the cell that joins was read.
func TestBoundsWhileACellJoins(t *testing.T) {
	h, start := New(time.Minute), time.Unix(1000, 0)
	read := func(cell uint16, second int, epoch int64, revision uint64) {
		at := start.Add(time.Duration(second) * time.Second)
		h.Add(cell, Reading{Begun: at, Ended: at, Epoch: epoch, Revision: revision})
	}
	cells := func(epoch int64) []uint16 { return map[int64][]uint16{1: {1, 2}, 2: {1, 2, 3}}[epoch] }
	read(1, 0, 1, 100)
	read(2, 0, 1, 200)
	read(1, 1, 1, 101)
	read(2, 1, 1, 201)
	read(1, 2, 2, 102)
	read(2, 2, 2, 202)
	for _, test := range []struct {
		name  string
		cell  uint16
		epoch int64
		want  map[uint16]uint64
	}{
		{"before the cell was read", 1, 1, map[uint16]uint64{2: 201}},
		{"after the cell was read once", 1, 1, map[uint16]uint64{2: 201}},
		{"after the others were read again", 1, 2, map[uint16]uint64{2: 203, 3: 7}},
		{"in the cell", 3, 2, map[uint16]uint64{1: 103, 2: 203}},
	} {
		switch test.name {
		case "after the cell was read once":
			read(3, 3, 2, 7)
		case "after the others were read again":
			read(2, 4, 2, 203)
			read(1, 4, 2, 103)
		case "in the cell":
			read(3, 5, 2, 8)
		}
		epoch, bounds, found := h.Bounds(test.cell, 1000, cells)
		if !found || epoch != test.epoch || !maps.Equal(bounds, test.want) {
			t.Errorf("%s: %v of epoch %d (%v), want %v of epoch %d", test.name, bounds, epoch, found, test.want, test.epoch)
		}
	}
	if epoch, bounds, found := h.Bounds(3, 7, cells); found {
		t.Errorf("what was written before the first reading of a cell has the bounds %v of epoch %d", bounds, epoch)
	}
}

func TestHistory(t *testing.T) {
	h, start := New(10*time.Second), time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	both := func(int64) []uint16 { return []uint16{1, 2} }
	for i := range 20 {
		h.Add(1, Reading{Begun: at(i), Ended: at(i), Epoch: 1, Revision: uint64(100 + i)})
		h.Add(2, Reading{Begun: at(i), Ended: at(i), Epoch: 1, Revision: uint64(200 + i)})
	}
	if _, bounds, found := h.Bounds(1, 113, both); !found || bounds[2] != 212 {
		t.Errorf("below 113: %v, %v", bounds, found)
	}
	if _, bounds, found := h.Bounds(1, 105, both); found {
		t.Errorf("a reading that is too old was found: %v", bounds)
	}
	if _, bounds, found := h.Bounds(3, 105, both); found {
		t.Errorf("a reading of an unknown cell was found: %v", bounds)
	}
	if _, bounds, found := h.Bounds(1, 113, func(int64) []uint16 { return nil }); found {
		t.Errorf("bounds of an unknown epoch were found: %v", bounds)
	}
	h.Add(2, Reading{Begun: at(100), Ended: at(100), Revision: 1})
	if _, bounds, found := h.Bounds(1, 113, both); found || len(h.cells) != 1 {
		t.Errorf("a cell that is no longer read was not forgotten: %v", bounds)
	}
}
