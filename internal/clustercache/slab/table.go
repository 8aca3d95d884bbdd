package slab

import "unsafe"

const chunkBytes = 1 << 20

// Table stores records of a type without pointers, numbered from one. A record keeps its address until it is freed.
type Table[T any] struct {
	regions  [][]byte
	chunks   []unsafe.Pointer
	perChunk uint32
	next     uint32
	free     []uint32
}

// New returns the number of a zeroed record.
func (t *Table[T]) New() uint32 {
	if n := len(t.free); n > 0 {
		id := t.free[n-1]
		t.free = t.free[:n-1]
		return id
	}
	if t.perChunk == 0 {
		var record T
		t.perChunk = uint32(chunkBytes / unsafe.Sizeof(record))
		t.next = 1
	}
	id := t.next
	t.next++
	if int(id/t.perChunk) == len(t.chunks) {
		region := mapRegion(chunkBytes)
		t.regions = append(t.regions, region)
		t.chunks = append(t.chunks, unsafe.Pointer(unsafe.SliceData(region)))
	}
	return id
}

// At returns a record.
func (t *Table[T]) At(id uint32) *T {
	var record T
	return (*T)(unsafe.Add(t.chunks[id/t.perChunk], uintptr(id%t.perChunk)*unsafe.Sizeof(record)))
}

// Free removes a record and zeroes it.
func (t *Table[T]) Free(id uint32) {
	var zero T
	*t.At(id) = zero
	t.free = append(t.free, id)
}

// Len counts the records.
func (t *Table[T]) Len() int {
	if t.next == 0 {
		return 0
	}
	return int(t.next) - 1 - len(t.free)
}

// Reserved returns how many bytes are reserved.
func (t *Table[T]) Reserved() int64 { return int64(len(t.chunks)) * chunkBytes }

// Close releases all memory.
func (t *Table[T]) Close() {
	for _, region := range t.regions {
		unmapRegion(region)
	}
	*t = Table[T]{}
}
