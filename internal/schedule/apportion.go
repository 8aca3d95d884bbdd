package schedule

import (
	"container/heap"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Apportion divides seats by weight with Webster's method (Sainte-Laguë): each seat goes to the name with the
// highest weight/(2·seats+1). Ties go to the name with fewer seats, then to the lower hash of name and salt, so
// that different templates prefer different clusters. A name without a weight gets no seat.
func Apportion(seats int32, weights map[string]int64, salt string) map[string]int32 {
	claimants := make(queue, 0, len(weights))
	shares := make(map[string]int32, len(weights))
	for name, weight := range weights {
		claimants = append(claimants, claimant{name: name, weight: uint64(max(0, weight))})
		shares[name] = 0
	}
	for _, c := range apportion(seats, claimants, salt) {
		shares[c.name] = int32(c.seats)
	}
	return shares
}

type claimant struct {
	name     string
	position int // index in the caller's list
	weight   uint64
	seats    uint64
	order    uint64
}

type queue []claimant

// apportion returns the claimants with a positive weight and their seats, in any order.
func apportion(seats int32, claimants queue, salt string) queue {
	claimants = slices.DeleteFunc(claimants, func(c claimant) bool { return c.weight == 0 })
	if len(claimants) == 0 {
		return nil
	}
	var key []byte
	for i := range claimants {
		key = append(append(append(key[:0], salt...), '/'), claimants[i].name...)
		claimants[i].order = xxhash.Sum64(key)
	}
	given := claimants.headStart(seats)
	heap.Init(&claimants)
	for ; given < int64(seats); given++ {
		claimants[0].seats++
		heap.Fix(&claimants, 0)
	}
	return claimants
}

// headStart assigns the seats that are certain and returns their number, so that the run time does not depend on
// the number of seats. With n claimants, the seats at divisor W/(S-n/2) add up to at most S, and the method never
// takes a seat back when there are more seats.
func (q queue) headStart(seats int32) int64 {
	certain := int64(seats) - int64(len(q)+1)/2
	if certain <= 0 {
		return 0
	}
	var sumHigh, sumLow uint64
	for i := range q {
		var carry uint64
		sumLow, carry = bits.Add64(sumLow, q[i].weight, 0)
		sumHigh += carry
	}
	if sumHigh > 0 {
		// Scale down huge weights: the error is far below one seat.
		for i := range q {
			q[i].weight >>= 12
		}
		return q.headStart(seats)
	}
	given := int64(0)
	for i := range q {
		high, low := bits.Mul64(q[i].weight, uint64(certain))
		share, remainder := bits.Div64(high, low, sumLow)
		if remainder > sumLow/2 {
			share++
		}
		q[i].seats = share
		given += int64(share)
	}
	return given
}

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Less implements heap.Interface: the next seat goes to the first element.
func (q queue) Less(i, j int) bool {
	a, b := &q[i], &q[j]
	// a.weight/(2a+1) > b.weight/(2b+1), multiplied out to avoid rounding.
	aHigh, aLow := bits.Mul64(a.weight, 2*b.seats+1)
	bHigh, bLow := bits.Mul64(b.weight, 2*a.seats+1)
	switch {
	case aHigh != bHigh:
		return aHigh > bHigh
	case aLow != bLow:
		return aLow > bLow
	case a.seats != b.seats:
		return a.seats < b.seats
	case a.order != b.order:
		return a.order < b.order
	default:
		return a.name < b.name
	}
}

// Push implements heap.Interface. It is never called.
func (q *queue) Push(any) {}

// Pop implements heap.Interface. It is never called.
func (q *queue) Pop() any { return nil }
