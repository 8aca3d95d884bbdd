package slots

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// fractionBits is the precision of a draw. Winning draws are around 1/n for n cells, so more than 30 of 40 bits are significant.
const fractionBits = 40

// chances returns u(cell, slot)·2⁶⁴ for every slot, where u is uniform in (0, 1). It depends on the seed.
func (c Cell) chances() []uint64 {
	place := len(c.Name) + 1 // a zero byte after the name separates it from the slot
	key := make([]byte, place+2)
	copy(key, c.Name)
	if c.Seed != 0 {
		key = binary.BigEndian.AppendUint32(key, c.Seed)
	}
	numbers := make([]uint64, Count)
	for slot := range numbers {
		binary.BigEndian.PutUint16(key[place:], uint16(slot))
		numbers[slot] = xxhash.Sum64(key)
	}
	return numbers
}

// draws returns −log2(u(cell, slot)) for every slot, as positive fixed-point numbers. A draw is exponentially distributed, and the cell with
// the smallest draw÷weight owns the slot. That is the order of −weight÷ln(u), largest first; beats multiplies instead of dividing.
func (c Cell) draws() []uint64 {
	numbers := c.chances()
	for slot, h := range numbers {
		numbers[slot] = negLog2(h)
	}
	return numbers
}

// negLog2 returns −log2((h+½) ÷ 2⁶⁴) with fractionBits bits after the point, and at least 1. The half keeps u away from 0 and 1.
func negLog2(h uint64) uint64 {
	// 2h+1 needs 65 bits. The position of its leading one is the integer part of the logarithm; the rest is the mantissa in [1, 2).
	whole := uint64(64 - bits.LeadingZeros64(h)) // floor(log2(2h+1)); h = 0 gives log2(1) = 0
	mantissa := uint64(1) << 63
	if h != 0 {
		lead := bits.LeadingZeros64(h)
		mantissa = h << lead
		if lead > 0 {
			mantissa |= 1 << (lead - 1) // the added half
		}
	}
	// Squaring a number doubles its logarithm: each square that reaches 2 yields a one bit of the fraction.
	var fraction uint64
	for range fractionBits {
		hi, _ := bits.Mul64(mantissa, mantissa) // 2.62 fixed point
		carry := hi >> 63
		fraction = fraction<<1 | carry
		mantissa = hi << (1 - carry)
	}
	log := whole<<fractionBits | fraction
	return max(65<<fractionBits-log, 1)
}

// beats reports whether draw a with weight wa is strictly better than draw b with weight wb.
func beats(a uint64, wa uint32, b uint64, wb uint32) bool {
	leftHi, leftLo := bits.Mul64(a, uint64(wb))
	rightHi, rightLo := bits.Mul64(b, uint64(wa))
	return leftHi < rightHi || (leftHi == rightHi && leftLo < rightLo)
}
