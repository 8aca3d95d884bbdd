package autoscale

import (
	"math"
	"math/bits"
)

// The functions in this file return the closest number if the result does not fit.

func add(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}

// addPods adds numbers of pods.
func addPods(a, b int32) int32 { return int32Of(int64(a) + int64(b)) }

// share returns a*b/c, rounded towards zero. b must not be negative, and c must be positive. The product may exceed 64
// bits: in thousandths of bytes, the memory of some thousand pods does.
func share(a, b, c int64) int64 {
	if a < 0 {
		return -share(-max(a, -math.MaxInt64), b, c)
	}
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}

// count returns a number of replicas, rounded up.
func count(replicas float64) int32 {
	return int32(min(max(math.Ceil(replicas), math.MinInt32), math.MaxInt32))
}

// int32Of returns n as an int32.
func int32Of(n int64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }
