package slots

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

// TestMain lowers the number of runs of each property test: every run checks all slots of several topologies.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	m.Run() // flags on the command line override this
}

func mustCompile(t testing.TB, cells ...Cell) *Map {
	t.Helper()
	m, err := Compile(1, cells)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// someCells draws between least and 6 Normal cells with weights from 1 to 20.
func someCells(t *rapid.T, least int) []Cell {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`), least, 6, rapid.ID[string]).Draw(t, "names")
	cells := make([]Cell, len(names))
	for i, name := range names {
		cells[i] = Cell{Name: name, Weight: rapid.Int32Range(1, 20).Draw(t, "weight of "+name)}
	}
	return cells
}

func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	t.Parallel()
	rapid.Check(t, property)
}

// TestCompileVectors detects any change of the arithmetic, on any platform.
func TestCompileVectors(t *testing.T) {
	m := mustCompile(t, Cell{Name: "a", Weight: 1}, Cell{Name: "b", Weight: 2}, Cell{Name: "c", Weight: 1, State: In}, Cell{Name: "d", Weight: 3, TargetWeight: 1})
	digest := xxhash.New()
	for slot := range Slot(Count) {
		r := m.Route(slot)
		_, _ = digest.Write([]byte{byte(r.Old), byte(r.New), byte(r.OldBackup), byte(r.Backup)})
	}
	if got, want := digest.Sum64(), uint64(0xa238b3e6d0fb2248); got != want {
		t.Errorf("the table's digest is %#x, want %#x", got, want)
	}
	if got, want := fmt.Sprint(m.Balance()), "[{a 2746 3335 3800} {b 5503 6451 5026} {c 0 3299 3829} {d 8135 3299 3729}]"; got != want {
		t.Errorf("balance %v, want %v", got, want)
	}
}

func TestNegLog2IsTheLogarithm(t *testing.T) {
	check := func(h uint64) {
		want := 64 - math.Log2(float64(h)+0.5)
		got := float64(negLog2(h)) / (1 << fractionBits)
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("negLog2(%#x) = %g, want %g", h, got, want)
		}
	}
	for shift := range 64 {
		check(1 << shift)
		check(1<<shift - 1)
		check(0xdeadbeefcafebabe >> shift)
	}
	check(math.MaxUint64)
	if negLog2(math.MaxUint64) == 0 || negLog2(0) != 65<<fractionBits {
		t.Error("wrong result at the ends of the range")
	}
}

func TestOwnersAreTheBestScores(t *testing.T) {
	cells := []Cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 2}, {Name: "c", Weight: 5}}
	m := mustCompile(t, cells...)
	for slot := range Slot(Count) {
		scores := map[string]float64{}
		for _, cell := range cells {
			h := xxhash.Sum64(binary.BigEndian.AppendUint16([]byte(cell.Name+"\x00"), uint16(slot)))
			scores[cell.Name] = -float64(cell.Weight) / math.Log((float64(h)+0.5)/(1<<64))
		}
		names := []string{"a", "b", "c"}
		slices.SortFunc(names, func(x, y string) int { return int(math.Copysign(1, scores[y]-scores[x])) })
		if r := m.Route(slot); m.Name(r.New) != names[0] || m.Name(r.Backup) != names[1] {
			t.Fatalf("slot %d is owned by %s with backup %s; the scores are %v", slot, m.Name(r.New), m.Name(r.Backup), scores)
		}
	}
}

func TestTieGoesToTheFirstName(t *testing.T) {
	r := newRace()
	same := make([]uint64, Count)
	for i := range same {
		same[i] = 7
	}
	for cell := range Index(3) {
		r.enter(cell, 1, same)
	}
	if got := r.places[5]; got.first.cell != 0 || got.second.cell != 1 {
		t.Errorf("first %d, second %d", got.first.cell, got.second.cell)
	}
}

func TestAddingACellOnlyTakesSlots(t *testing.T) {
	check(t, func(t *rapid.T) {
		cells := someCells(t, 2)
		joining := len(cells) - 1
		before := mustCompileRapid(t, cells[:joining])
		cells[joining].State = In
		during := mustCompileRapid(t, cells)
		for slot := range Slot(Count) {
			r, was := during.Route(slot), before.Route(slot)
			if during.Name(r.Old) != before.Name(was.New) {
				t.Fatalf("slot %d was owned by %s, but its old owner is %s", slot, before.Name(was.New), during.Name(r.Old))
			}
			if r.Moving() && during.Name(r.New) != cells[joining].Name {
				t.Fatalf("slot %d moves from %s to %s, which did not join", slot, during.Name(r.Old), during.Name(r.New))
			}
		}
	})
}

func TestSlotsOfARemovedCellGoToTheirBackup(t *testing.T) {
	check(t, func(t *rapid.T) {
		cells := someCells(t, 2)
		before := mustCompileRapid(t, cells)
		gone := rapid.IntRange(0, len(cells)-1).Draw(t, "gone")
		how := rapid.SampledFrom([]State{Out, Failed}).Draw(t, "how")
		cells[gone].State = how
		after := mustCompileRapid(t, cells)
		for slot := range Slot(Count) {
			was, is := before.Route(slot), after.Route(slot)
			want := was.New
			if before.Name(was.New) == cells[gone].Name {
				want = was.Backup
			}
			if is.New != want {
				t.Fatalf("slot %d goes to %s, want %s", slot, after.Name(is.New), after.Name(want))
			}
			if how == Failed && is.Moving() {
				t.Fatalf("slot %d moves although its former owner has failed", slot)
			}
		}
	})
}

func TestNothingMovesWithoutAChange(t *testing.T) {
	check(t, func(t *rapid.T) {
		cells := someCells(t, 1)
		m := mustCompileRapid(t, cells)
		for slot := range Slot(Count) {
			r := m.Route(slot)
			if r.Moving() || r.OldBackup != r.Backup || r.New == r.Backup || (len(cells) > 1) != (r.Backup != None) {
				t.Fatalf("slot %d: %+v", slot, r)
			}
		}
		shuffled := rapid.Permutation(cells).Draw(t, "shuffled")
		if again := mustCompileRapid(t, shuffled); again.routes != m.routes {
			t.Fatal("the order of the cells matters")
		}
		if slices.Max(m.Stages()) != 0 {
			t.Fatalf("without a change the stages are %v", m.Stages())
		}
		if len(m.Flows()) != 0 || len(Moves(m, m)) != 0 {
			t.Fatal("slots move without a change")
		}
	})
}

func TestStatesAndWeights(t *testing.T) {
	check(t, func(t *rapid.T) {
		cells := someCells(t, 2)
		for i := range cells[1:] {
			cells[i+1].State = rapid.SampledFrom([]State{Normal, In, Out, Failed}).Draw(t, "state")
			cells[i+1].TargetWeight = rapid.Int32Range(0, 20).Draw(t, "target")
		}
		m := mustCompileRapid(t, cells)
		final := slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.State == Out || c.State == Failed })
		for i := range final {
			final[i].State = Normal
			if final[i].TargetWeight != 0 {
				final[i].Weight, final[i].TargetWeight = final[i].TargetWeight, 0
			}
		}
		after := mustCompileRapid(t, final)
		for slot := range Slot(Count) {
			r := m.Route(slot)
			for _, side := range []struct {
				index     Index
				forbidden State
			}{{r.Old, In}, {r.OldBackup, In}, {r.New, Out}, {r.Backup, Out}} {
				if side.index == None {
					continue
				}
				if state := m.Cell(side.index).State; state == Failed || state == side.forbidden {
					t.Fatalf("slot %d: %+v uses a cell in state %v", slot, r, state)
				}
			}
			if m.Name(r.New) != after.Name(after.Route(slot).New) {
				t.Fatalf("slot %d moves to %s, want %s", slot, m.Name(r.New), after.Name(after.Route(slot).New))
			}
		}
		stages := m.Stages()
		for _, flow := range m.Flows() {
			from, _ := m.Index(flow.From)
			to, _ := m.Index(flow.To)
			if stages[to] >= stages[from] {
				t.Fatalf("slots move from %s in stage %d to %s in stage %d", flow.From, stages[from], flow.To, stages[to])
			}
		}
		if len(Moves(m, after)) != 0 {
			t.Fatal("finishing the change moves slots")
		}
	})
}

func TestRaisingAWeightOnlyTakesSlots(t *testing.T) {
	check(t, func(t *rapid.T) {
		cells := someCells(t, 2)
		cells[0].TargetWeight = cells[0].Weight + rapid.Int32Range(1, 20).Draw(t, "more")
		m := mustCompileRapid(t, cells)
		for _, flow := range m.Flows() {
			if flow.To != cells[0].Name {
				t.Fatalf("%d slots move from %s to %s", len(flow.Slots), flow.From, flow.To)
			}
		}
	})
}

func TestFlowsAndBalanceAgree(t *testing.T) {
	m := mustCompile(t, Cell{Name: "a", Weight: 2}, Cell{Name: "b", Weight: 2, State: Out}, Cell{Name: "c", Weight: 1}, Cell{Name: "d", Weight: 2, State: In})
	change := map[string]int{}
	share := 0.0
	for _, flow := range m.Flows() {
		change[flow.From] -= len(flow.Slots)
		change[flow.To] += len(flow.Slots)
		share += flow.Share()
	}
	for _, holding := range m.Balance() {
		if holding.After-holding.Before != change[holding.Cell] {
			t.Errorf("%+v, but the flows add up to %+d", holding, change[holding.Cell])
		}
	}
	if balance := m.Balance(); balance[1].After != 0 || balance[3].Before != 0 {
		t.Errorf("the leaving or the joining cell owns wrong slots: %v", balance)
	}
	// b's two sevenths leave; d takes two fifths of what stays. Nothing else moves.
	if share < 0.4 || share > 0.65 {
		t.Errorf("%.3f of the slots move", share)
	}
}

func TestFirstCellsJoinWithoutMoving(t *testing.T) {
	m := mustCompile(t, Cell{Name: "a", Weight: 1, State: In}, Cell{Name: "b", Weight: 1, State: In}, Cell{Name: "c", Weight: 1, State: Failed})
	if flows := m.Flows(); len(flows) != 0 {
		t.Errorf("slots move in a topology that was empty: %v", flows)
	}
}

func TestCompileRefuses(t *testing.T) {
	many := make([]Cell, MaxCells+1)
	for i := range many {
		many[i] = Cell{Name: strconv.Itoa(i), Weight: 1}
	}
	for want, cells := range map[string][]Cell{
		"no cell is Normal or In": {{Name: "a", Weight: 1, State: Out}, {Name: "b", Weight: 1, State: Failed}},
		"listed twice":            {{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "a", Weight: 1}},
		"has no name":             {{Weight: 1}},
		"has weight 0":            {{Name: "a"}},
		"has weight -3":           {{Name: "a", Weight: -3}},
		"negative target weight":  {{Name: "a", Weight: 1, TargetWeight: -1}},
		"unknown state State(9)":  {{Name: "a", Weight: 1, State: 9}},
		"maximum of 254":          many,
	} {
		if _, err := Compile(1, cells); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if _, err := Compile(-1, []Cell{{Name: "a", Weight: 1}}); err == nil {
		t.Error("a negative epoch was accepted")
	}
	if _, err := Compile(1, many[:MaxCells]); err != nil {
		t.Errorf("the largest topology does not compile: %v", err)
	}
}

func TestMapCells(t *testing.T) {
	m := mustCompile(t, Cell{Name: "b", Weight: 2}, Cell{Name: "a", Weight: 1, State: Failed})
	if m.Epoch() != 1 || m.Cells() != 2 || !slices.Equal(m.Names(), []string{"a", "b"}) {
		t.Errorf("epoch %d, cells %d, names %v", m.Epoch(), m.Cells(), m.Names())
	}
	if i, found := m.Index("b"); !found || i != 1 || m.Cell(i).Weight != 2 {
		t.Errorf("b is at %d (%v)", i, found)
	}
	if i, found := m.Index("c"); found || i != None || m.Name(i) != "" {
		t.Errorf("c is at %d (%v), called %q", i, found, m.Name(i))
	}
}

func mustCompileRapid(t *rapid.T, cells []Cell) *Map {
	t.Helper()
	m, err := Compile(1, cells)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRoutingDoesNotAllocate(t *testing.T) {
	m := mustCompile(t, Cell{Name: "a", Weight: 1}, Cell{Name: "b", Weight: 1})
	long := strings.Repeat("x", 2*longestKey)
	for _, name := range []string{"web", long} {
		if n := testing.AllocsPerRun(100, func() { sink = m.Route(Of("default", name)) }); n != 0 {
			t.Errorf("routing a name of %d bytes allocates %g times", len(name), n)
		}
	}
}

var sink Route

func BenchmarkRoute(b *testing.B) {
	m := mustCompile(b, Cell{Name: "a", Weight: 1}, Cell{Name: "b", Weight: 1}, Cell{Name: "c", Weight: 1})
	namespace, name := "team-payments-production", "checkout-frontend-deployment-with-a-long-name"
	b.ReportAllocs()
	for b.Loop() {
		sink = m.Route(Of(namespace, name))
	}
}

func BenchmarkCompile(b *testing.B) {
	cells := make([]Cell, 16)
	for i := range cells {
		cells[i] = Cell{Name: fmt.Sprintf("cell-%02d", i), Weight: 100}
	}
	for b.Loop() {
		if _, err := Compile(1, cells); err != nil {
			b.Fatal(err)
		}
	}
}
