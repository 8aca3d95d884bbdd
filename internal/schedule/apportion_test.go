package schedule

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestApportion(t *testing.T) {
	tests := []struct {
		seats   int32
		weights map[string]int64
		want    map[string]int32
	}{
		{9, map[string]int64{"a": 1, "b": 2}, map[string]int32{"a": 3, "b": 6}},
		{9, map[string]int64{"a": 1, "b": 3}, map[string]int32{"a": 2, "b": 7}},
		{8, map[string]int64{"a": 100_000, "b": 80_000, "c": 30_000, "d": 20_000}, map[string]int32{"a": 3, "b": 3, "c": 1, "d": 1}},
		{5, map[string]int64{"a": 1, "b": 0, "c": -3}, map[string]int32{"a": 5, "b": 0, "c": 0}},
		{5, map[string]int64{"a": 0}, map[string]int32{"a": 0}},
		{0, map[string]int64{"a": 1}, map[string]int32{"a": 0}},
		{7, map[string]int64{"a": 1 << 62, "b": 1 << 62, "c": 1 << 62, "d": 1 << 62, "e": 1}, map[string]int32{}},
	}
	for _, test := range tests {
		got := Apportion(test.seats, test.weights, "salt")
		if len(test.want) == 0 {
			sum := int32(0)
			for _, seats := range got {
				sum += seats
			}
			if sum != test.seats || got["e"] != 0 {
				t.Errorf("Apportion(%d, %v) = %v", test.seats, test.weights, got)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("Apportion(%d, %v): %s", test.seats, test.weights, diff)
		}
	}
}

// TestApportionIsWebster checks the defining properties of the method.
func TestApportionIsWebster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := map[string]int64{}
		for i := range rapid.IntRange(1, 12).Draw(t, "claimants") {
			weights[fmt.Sprint(i)] = rapid.Int64Range(1, 40).Draw(t, "weight")
		}
		seats := rapid.Int32Range(0, 300).Draw(t, "seats")
		got := Apportion(seats, weights, "salt")
		sum := int32(0)
		for _, share := range got {
			sum += share
		}
		if sum != seats {
			t.Fatalf("%d seats assigned, want %d", sum, seats)
		}
		// No seat would go to another claimant.
		for _, has := range slices.Sorted(maps.Keys(weights)) {
			for wants := range weights {
				if got[has] == 0 || has == wants {
					continue
				}
				last := big.NewRat(weights[has], int64(2*got[has]-1))
				next := big.NewRat(weights[wants], int64(2*got[wants]+1))
				if next.Cmp(last) > 0 {
					t.Fatalf("%s with %d seats has a seat that belongs to %s with %d", has, got[has], wants, got[wants])
				}
			}
		}
		// An additional seat takes none away.
		for name, share := range Apportion(seats+1, weights, "salt") {
			if share < got[name] {
				t.Fatalf("%s loses a seat when there is one more", name)
			}
		}
	})
}
