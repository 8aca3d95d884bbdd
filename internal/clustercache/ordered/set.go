// Package ordered keeps large sets of pairs of numbers in order, in little more memory than the pairs themselves.
//
// Indexes are such sets: a pair is a term, such as a node, and a member, such as a pod on it. The members of a term are read in order,
// starting anywhere.
package ordered

import (
	"slices"

	"github.com/cellplane/cellplane/internal/clustercache/slab"
)

// Set is a set of pairs, sorted by term and then by the order of members given to NewSet. It consists of blocks; the first pair of each
// is stored separately, so that a search touches few blocks.
type Set struct {
	compare func(a, b uint32) int
	table   slab.Table[block]
	blocks  []uint32
	firsts  []pair
	length  int
}

type pair struct{ term, member uint32 }

const blockSize = 126

type block struct {
	n     uint32
	_     uint32
	pairs [blockSize]pair
}

// NewSet returns an empty set whose members are in an order.
func NewSet(compare func(a, b uint32) int) *Set { return &Set{compare: compare} }

// Insert adds a pair. It returns false if the set already has it.
func (s *Set) Insert(term, member uint32) bool {
	p := pair{term, member}
	if len(s.blocks) == 0 {
		s.addBlock(0, []pair{p})
		s.length++
		return true
	}
	bi := s.blockOf(p)
	b := s.table.At(s.blocks[bi])
	i, found := s.search(b, p)
	if found {
		return false
	}
	s.length++
	if b.n == blockSize {
		switch {
		case i == blockSize:
			// Pairs often arrive in order; starting the next block leaves this one full.
			s.addBlock(bi+1, []pair{p})
			return true
		default:
			half := blockSize / 2
			s.addBlock(bi+1, b.pairs[half:])
			b.n = uint32(half)
			if i > half {
				b, i, bi = s.table.At(s.blocks[bi+1]), i-half, bi+1
			}
		}
	}
	copy(b.pairs[i+1:b.n+1], b.pairs[i:b.n])
	b.pairs[i] = p
	b.n++
	s.firsts[bi] = b.pairs[0]
	return true
}

// Delete removes a pair. It returns false if the set does not have it.
func (s *Set) Delete(term, member uint32) bool {
	if len(s.blocks) == 0 {
		return false
	}
	p := pair{term, member}
	bi := s.blockOf(p)
	b := s.table.At(s.blocks[bi])
	i, found := s.search(b, p)
	if !found {
		return false
	}
	s.length--
	copy(b.pairs[i:], b.pairs[i+1:b.n])
	b.n--
	if b.n == 0 {
		s.dropBlock(bi)
		return true
	}
	s.firsts[bi] = b.pairs[0]
	if bi+1 < len(s.blocks) {
		next := s.table.At(s.blocks[bi+1])
		if b.n+next.n <= blockSize/2 {
			copy(b.pairs[b.n:], next.pairs[:next.n])
			b.n += next.n
			s.dropBlock(bi + 1)
		}
	}
	return true
}

// Ascend visits the members of a term in order, starting with the first for which after is false, until visit returns false. after must
// be true for a prefix of the members.
func (s *Set) Ascend(term uint32, after func(member uint32) bool, visit func(member uint32) bool) {
	before := func(p pair) bool { return p.term < term || p.term == term && after != nil && after(p.member) }
	// The block before the first that begins at or after the place may contain it.
	bi := partition(len(s.firsts), func(i int) bool { return before(s.firsts[i]) })
	if bi > 0 {
		bi--
	}
	if bi == len(s.blocks) {
		return
	}
	b := s.table.At(s.blocks[bi])
	i := partition(int(b.n), func(i int) bool { return before(b.pairs[i]) })
	for {
		for ; i < int(b.n); i++ {
			if b.pairs[i].term != term || !visit(b.pairs[i].member) {
				return
			}
		}
		bi, i = bi+1, 0
		if bi == len(s.blocks) {
			return
		}
		b = s.table.At(s.blocks[bi])
	}
}

// Len counts the pairs.
func (s *Set) Len() int { return s.length }

// Reserved returns how many bytes are reserved.
func (s *Set) Reserved() int64 { return s.table.Reserved() + int64(12*cap(s.blocks)) }

// Close releases the memory.
func (s *Set) Close() { s.table.Close() }

func (s *Set) less(a, b pair) bool {
	if a.term != b.term {
		return a.term < b.term
	}
	return a.member != b.member && s.compare(a.member, b.member) < 0
}

// blockOf returns the block that has or should have a pair.
func (s *Set) blockOf(p pair) int {
	bi := partition(len(s.firsts), func(i int) bool { return !s.less(p, s.firsts[i]) })
	return max(bi-1, 0)
}

func (s *Set) search(b *block, p pair) (at int, found bool) {
	i := partition(int(b.n), func(i int) bool { return s.less(b.pairs[i], p) })
	return i, i < int(b.n) && b.pairs[i] == p
}

func (s *Set) addBlock(at int, pairs []pair) {
	id := s.table.New()
	b := s.table.At(id)
	b.n = uint32(copy(b.pairs[:], pairs))
	s.blocks = slices.Insert(s.blocks, at, id)
	s.firsts = slices.Insert(s.firsts, at, b.pairs[0])
}

func (s *Set) dropBlock(at int) {
	s.table.Free(s.blocks[at])
	s.blocks = slices.Delete(s.blocks, at, at+1)
	s.firsts = slices.Delete(s.firsts, at, at+1)
}

// partition returns the first of n for which before is false.
func partition(n int, before func(i int) bool) int {
	low, high := 0, n
	for low < high {
		if middle := int(uint(low+high) >> 1); before(middle) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}
