package slab

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// Interner numbers distinct byte strings from one, and counts references. The empty byte string always has number zero.
type Interner struct {
	arena   *Arena
	records Table[interned]
	// slots is a hash table of numbers, with linear probing. Its length is a power of two.
	slots []uint32
	taken int
}

type interned struct {
	ref  Ref
	hash uint32
	refs uint32
}

// NewInterner returns an Interner that stores its byte strings in an arena.
func NewInterner(arena *Arena) *Interner {
	return &Interner{arena: arena, slots: make([]uint32, 64)}
}

// Acquire returns the number of a byte string with one more reference, and whether it is new.
func (n *Interner) Acquire(b []byte) (id uint32, fresh bool, err error) {
	if len(b) == 0 {
		return 0, false, nil
	}
	hash := hashOf(b)
	if id, _ := n.find(b, hash); id != 0 {
		n.records.At(id).refs++
		return id, false, nil
	}
	ref, err := n.arena.Put(b)
	if err != nil {
		return 0, false, err
	}
	if 4*(n.taken+1) > 3*len(n.slots) {
		n.grow()
	}
	id = n.records.New()
	*n.records.At(id) = interned{ref: ref, hash: hash, refs: 1}
	n.place(id, hash)
	n.taken++
	return id, true, nil
}

// AcquireLike is Acquire for a byte string that probably has a given number.
func (n *Interner) AcquireLike(b []byte, probably uint32) (id uint32, err error) {
	if probably != 0 && bytes.Equal(n.Get(probably), b) {
		n.Retain(probably)
		return probably, nil
	}
	id, _, err = n.Acquire(b)
	return id, err
}

// Retain adds a reference to a number that has one.
func (n *Interner) Retain(id uint32) {
	if id != 0 {
		n.records.At(id).refs++
	}
}

// Release removes a reference. It returns true if that was the last one and the number was freed. forget is called before that.
func (n *Interner) Release(id uint32, forget func()) bool {
	if id == 0 {
		return false
	}
	record := n.records.At(id)
	if record.refs > 1 {
		record.refs--
		return false
	}
	if forget != nil {
		forget()
	}
	_, slot := n.find(n.arena.Get(record.ref), record.hash)
	n.remove(slot)
	n.taken--
	n.arena.Free(record.ref)
	n.records.Free(id)
	return true
}

// Lookup returns the number of a byte string without adding a reference; ok is false if it has none.
func (n *Interner) Lookup(b []byte) (id uint32, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	id, _ = n.find(b, hashOf(b))
	return id, id != 0
}

// Get returns the byte string of a number.
func (n *Interner) Get(id uint32) []byte {
	if id == 0 {
		return nil
	}
	return n.arena.Get(n.records.At(id).ref)
}

// Refs counts the references to a number.
func (n *Interner) Refs(id uint32) int {
	if id == 0 {
		return 0
	}
	return int(n.records.At(id).refs)
}

// Len counts the byte strings.
func (n *Interner) Len() int { return n.taken }

// Reserved returns how many bytes are reserved, besides those in the arena.
func (n *Interner) Reserved() int64 { return n.records.Reserved() + int64(4*len(n.slots)) }

// Close releases the memory that is not the arena's.
func (n *Interner) Close() { n.records.Close() }

func hashOf(b []byte) uint32 {
	sum := xxhash.Sum64(b)
	return uint32(sum ^ sum>>32)
}

func (n *Interner) find(b []byte, hash uint32) (id uint32, slot int) {
	mask := len(n.slots) - 1
	for slot = int(hash) & mask; n.slots[slot] != 0; slot = (slot + 1) & mask {
		id := n.slots[slot]
		if record := n.records.At(id); record.hash == hash && bytes.Equal(n.arena.Get(record.ref), b) {
			return id, slot
		}
	}
	return 0, slot
}

func (n *Interner) place(id, hash uint32) {
	mask := len(n.slots) - 1
	slot := int(hash) & mask
	for n.slots[slot] != 0 {
		slot = (slot + 1) & mask
	}
	n.slots[slot] = id
}

// remove empties a slot and moves up the entries that linear probing would no longer find.
func (n *Interner) remove(slot int) {
	mask := len(n.slots) - 1
	n.slots[slot] = 0
	for next := (slot + 1) & mask; n.slots[next] != 0; next = (next + 1) & mask {
		home := int(n.records.At(n.slots[next]).hash) & mask
		if (next-home)&mask >= (next-slot)&mask {
			n.slots[slot], n.slots[next] = n.slots[next], 0
			slot = next
		}
	}
}

func (n *Interner) grow() {
	old := n.slots
	n.slots = make([]uint32, 2*len(old))
	for _, id := range old {
		if id != 0 {
			n.place(id, n.records.At(id).hash)
		}
	}
}
