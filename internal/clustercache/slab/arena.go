package slab

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Ref refers to a byte string of an Arena. The zero Ref refers to an empty one.
type Ref uint32

const (
	unit       = 8
	spanSize   = 64 << 10
	regionSize = 64 << 20
	header     = 2
	// maxSmall is the longest byte string that shares a span with others.
	maxSmall = spanSize/2 - header
	// largeRef marks references to longer ones.
	largeRef Ref = 1 << 31
	// maxSpans keeps references to spans below largeRef.
	maxSpans = int(largeRef) / (spanSize / unit)
)

// ErrFull means that an Arena has reached its capacity of sixteen gigabytes.
var ErrFull = errors.New("the arena is full")

// Arena stores byte strings. Those of similar length share spans of memory; an empty span is released.
type Arena struct {
	regions [][]byte
	spans   []span
	// open are the spans of each class with free slots.
	open [classes]uint32
	// empty are spans without any byte strings.
	empty []uint32

	// The few long byte strings are on the heap.
	large     [][]byte
	freeLarge []uint32

	used int64
}

// span is a range of memory with slots of one size. Spans with free slots form a list.
type span struct {
	class      uint8
	free       uint16 // the first free slot plus one; its first two bytes are the next
	used       uint16
	cut        uint16 // slots used so far
	prev, next uint32 // span plus one
}

// Put copies a byte string into the arena.
func (a *Arena) Put(b []byte) (Ref, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(b) > maxSmall {
		return a.putLarge(b), nil
	}
	class := classOf(len(b) + header)
	if a.open[class] == 0 && !a.openSpan(class) {
		return 0, ErrFull
	}
	id := a.open[class] - 1
	s := &a.spans[id]
	size := classSize(class)
	var slot int
	if s.free > 0 {
		slot = int(s.free) - 1
		s.free = binary.LittleEndian.Uint16(a.span(id)[slot*size:])
	} else {
		slot = int(s.cut)
		s.cut++
	}
	s.used++
	if s.free == 0 && (int(s.cut)+1)*size > spanSize {
		a.unlink(id)
	}
	at := a.span(id)[slot*size:]
	binary.LittleEndian.PutUint16(at, uint16(len(b)))
	copy(at[header:], b)
	a.used += int64(size)
	// No reference is zero: the first slot of the first span is not used.
	return Ref((int(id)*spanSize + slot*size) / unit), nil
}

// Get returns a byte string. It must not be changed, nor used after Free.
func (a *Arena) Get(ref Ref) []byte {
	if ref == 0 {
		return nil
	}
	if ref&largeRef != 0 {
		return a.large[ref&^largeRef]
	}
	offset := int(ref) * unit
	at := a.regions[offset/regionSize][offset%regionSize:]
	n := int(binary.LittleEndian.Uint16(at))
	return at[header : header+n : header+n]
}

// Free removes a byte string.
func (a *Arena) Free(ref Ref) {
	if ref == 0 {
		return
	}
	if ref&largeRef != 0 {
		i := ref &^ largeRef
		a.used -= int64(len(a.large[i]))
		a.large[i] = nil
		a.freeLarge = append(a.freeLarge, uint32(i))
		return
	}
	offset := int(ref) * unit
	id := uint32(offset / spanSize)
	s := &a.spans[id]
	size := classSize(s.class)
	slot := offset % spanSize / size
	wasOpen := s.free > 0 || (int(s.cut)+1)*size <= spanSize
	binary.LittleEndian.PutUint16(a.span(id)[slot*size:], s.free)
	s.free = uint16(slot) + 1
	s.used--
	a.used -= int64(size)
	if !wasOpen {
		a.link(id)
	}
	if s.used == 0 && id != 0 {
		a.unlink(id)
		releaseRange(a.span(id))
		a.empty = append(a.empty, id)
	}
}

// Used returns how many bytes are in use.
func (a *Arena) Used() int64 { return a.used }

// Reserved returns how many bytes the spans have.
func (a *Arena) Reserved() int64 {
	reserved := int64(len(a.spans)-len(a.empty)) * spanSize
	for _, b := range a.large {
		reserved += int64(len(b))
	}
	return reserved
}

// Close releases all memory.
func (a *Arena) Close() {
	for _, region := range a.regions {
		unmapRegion(region)
	}
	*a = Arena{}
}

func (a *Arena) putLarge(b []byte) Ref {
	a.used += int64(len(b))
	if n := len(a.freeLarge); n > 0 {
		i := a.freeLarge[n-1]
		a.freeLarge = a.freeLarge[:n-1]
		a.large[i] = bytes.Clone(b)
		return largeRef | Ref(i)
	}
	a.large = append(a.large, bytes.Clone(b))
	return largeRef | Ref(len(a.large)-1)
}

// openSpan adds a span to a class.
func (a *Arena) openSpan(class uint8) bool {
	var id uint32
	if n := len(a.empty); n > 0 {
		id = a.empty[n-1]
		a.empty = a.empty[:n-1]
	} else {
		if len(a.spans) == maxSpans {
			return false
		}
		id = uint32(len(a.spans))
		if int(id)*spanSize == len(a.regions)*regionSize {
			a.regions = append(a.regions, mapRegion(regionSize))
		}
		a.spans = append(a.spans, span{})
	}
	a.spans[id] = span{class: class}
	if id == 0 {
		a.spans[id].cut, a.spans[id].used = 1, 1
	}
	a.link(id)
	return true
}

func (a *Arena) span(id uint32) []byte {
	offset := int(id) * spanSize
	return a.regions[offset/regionSize][offset%regionSize:][:spanSize]
}

func (a *Arena) link(id uint32) {
	s := &a.spans[id]
	s.prev, s.next = 0, a.open[s.class]
	if s.next != 0 {
		a.spans[s.next-1].prev = id + 1
	}
	a.open[s.class] = id + 1
}

func (a *Arena) unlink(id uint32) {
	s := &a.spans[id]
	if s.prev != 0 {
		a.spans[s.prev-1].next = s.next
	} else {
		a.open[s.class] = s.next
	}
	if s.next != 0 {
		a.spans[s.next-1].prev = s.prev
	}
	s.prev, s.next = 0, 0
}

// Slot sizes are multiples of the unit up to fineLimit, and then eight sizes between two powers of two.
const (
	fineLimit   = 1024
	fineClasses = fineLimit / unit
	classes     = fineClasses + 5*8
)

func classOf(size int) uint8 {
	if size <= fineLimit {
		return uint8((size+unit-1)/unit - 1)
	}
	base, class := fineLimit, fineClasses
	for size > 2*base {
		base, class = 2*base, class+8
	}
	return uint8(class + (size-base+base/8-1)/(base/8) - 1)
}

func classSize(class uint8) int {
	if class < fineClasses {
		return (int(class) + 1) * unit
	}
	step := int(class) - fineClasses
	base := fineLimit << (step / 8)
	return base + (step%8+1)*base/8
}
