package slots

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// joined returns cells that have joined one after the other, each with its seed.
func joined(prefix string, weights ...int32) []Cell {
	var cells []Cell
	for i, weight := range weights {
		cell := Cell{Name: fmt.Sprintf("%s%d", prefix, i), Weight: weight}
		cell.Seed = Seed(cells, cell)
		cells = append(cells, cell)
	}
	return cells
}

// counted returns how many of 100 000 names each cell owns.
func counted(m *Map) (counts []int, names int) {
	counts, names = make([]int, m.Cells()), 100_000
	for i := range names {
		counts[m.Route(Of(fmt.Sprintf("team-%d", i%97), fmt.Sprintf("app-%d", i))).New]++
	}
	return counts, names
}

func TestBalanceByWeight(t *testing.T) {
	for _, weights := range [][]int32{
		{1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		{1, 2, 3}, {100, 100, 100, 100, 50}, {2, 2, 2, 2, 2, 1, 1, 1}, {5, 1, 1, 1},
	} {
		for _, prefix := range []string{"cell-", "eu-central-", "x"} {
			t.Run(fmt.Sprint(prefix, weights), func(t *testing.T) {
				cells, total := joined(prefix, weights...), 0.0
				for _, weight := range weights {
					total += float64(weight)
				}
				counts, names := counted(mustCompile(t, cells...))
				for i, cell := range cells {
					want := float64(cell.Weight) / total
					got := float64(counts[i]) / float64(names)
					t.Logf("%s: share %.4f, wanted %.4f (%+.1f %%)", cell.Name, got, want, 100*(got/want-1))
					if math.Abs(got/want-1) > 0.03 {
						t.Errorf("%s has %.4f of the names, want %.4f", cell.Name, got, want)
					}
				}
			})
		}
	}
}

// TestSeedsBalance checks that slots follow weights if cells have joined one after the other.
func TestSeedsBalance(t *testing.T) {
	check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Int32Range(1, 3), 2, 8).Draw(t, "weights")
		prefix := rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "prefix")
		m := mustCompileRapid(t, joined(prefix, weights...))
		total := 0.0
		for _, weight := range weights {
			total += float64(weight)
		}
		for i, holding := range m.Balance() {
			if share := float64(holding.After) / Count * total / float64(weights[i]); math.Abs(share-1) > 0.02 {
				t.Fatalf("%s has %d slots, %.3f of its share", holding.Cell, holding.After, share)
			}
		}
	})
}

func TestSeedConsidersStayingCells(t *testing.T) {
	joins := Cell{Name: "new", Weight: 2}
	if seed := Seed(nil, joins); seed != 0 {
		t.Errorf("the first cell joins with seed %d", seed)
	}
	stay := []Cell{{Name: "a", Weight: 3}, {Name: "b", Weight: 1}, {Name: "c", Weight: 2}, {Name: "d", Weight: 2}, {Name: "e", Weight: 1}}
	want := Seed(stay, joins)
	if want == 0 {
		t.Fatal("these cells need no seed; the test needs others")
	}
	gone := append([]Cell{{Name: "f", Weight: 4, State: Failed}, {Name: "g", Weight: 1, State: Out}}, stay...)
	gone[2].Weight, gone[2].TargetWeight = 9, 3
	if got := Seed(gone, joins); got != want {
		t.Errorf("seed %d among cells that leave, have failed and change their weight, want %d", got, want)
	}
}

// TestSeedsChangeDraws: another seed is another draw, and seed 0 draws as before seeds existed.
func TestSeedsChangeDraws(t *testing.T) {
	draws := func(seed uint32) []uint64 { return Cell{Name: "a", Seed: seed}.draws() }
	for _, pair := range [][2]uint32{{0, 1}, {1, 2}, {1, 1 << 24}} {
		same := 0
		one, other := draws(pair[0]), draws(pair[1])
		for slot := range one {
			if one[slot] == other[slot] {
				same++
			}
		}
		if same > 0 {
			t.Errorf("seeds %v have the same draws for %d slots", pair, same)
		}
	}
}

func BenchmarkSeed(b *testing.B) {
	cells := joined("cell-", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	for b.Loop() {
		Seed(cells, Cell{Name: "new", Weight: 1})
	}
}
