package slots

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// shown is a version as the owners determine it.
type shown struct {
	change, cell uint16
	revision     int
}

func (v shown) compare(w shown) int {
	return cmp.Or(cmp.Compare(v.change, w.change), cmp.Compare(v.cell, w.cell), cmp.Compare(v.revision, w.revision))
}

// stored is where an object is.
type stored struct {
	cell     string
	revision int
}

// ownersWorld is a federation whose topology changes while objects are written, moved and promoted.
type ownersWorld struct {
	t         *rapid.T
	cells     []Cell
	m         *Map
	owners    *Owners
	joined    int
	revisions map[string]int
	objects   map[Slot]stored
	highest   map[Slot]shown
}

func (w *ownersWorld) name() string { w.joined++; return "c" + strconv.Itoa(w.joined) }

// apply puts a topology in force.
func (w *ownersWorld) apply(cells []Cell) {
	m, err := Compile(w.epoch()+1, cells)
	if err != nil {
		w.t.Fatal(err)
	}
	owners, err := w.owners.Next(m)
	if err != nil {
		w.t.Fatal(err)
	}
	w.cells, w.m, w.owners = cells, m, owners
	for slot, object := range w.objects {
		if _, failed := w.failed(object.cell); !failed {
			w.show(slot, object)
		}
	}
}

func (w *ownersWorld) epoch() int64 {
	if w.owners == nil {
		return 0
	}
	return w.owners.Epoch()
}

func (w *ownersWorld) failed(name string) (Cell, bool) {
	for _, cell := range w.cells {
		if cell.Name == name {
			return cell, cell.State == Failed
		}
	}
	return Cell{}, true
}

// show checks that an object is never shown with a lower version than before.
func (w *ownersWorld) show(slot Slot, object stored) shown {
	number := w.owners.Number(object.cell)
	version := shown{w.owners.Since(slot, number), number, object.revision}
	if version.change == 0 || number == 0 {
		w.t.Fatalf("slot %d: the object in cell %s has no version", slot, object.cell)
	}
	if version.compare(w.highest[slot]) < 0 {
		w.t.Fatalf("slot %d: version %v after %v", slot, version, w.highest[slot])
	}
	w.highest[slot] = version
	return version
}

// store writes a new revision of an object and checks that its version is higher than all before.
func (w *ownersWorld) store(slot Slot, cell string) {
	before := w.highest[slot]
	w.revisions[cell]++
	w.objects[slot] = stored{cell, w.revisions[cell]}
	if w.show(slot, w.objects[slot]).compare(before) <= 0 {
		w.t.Fatalf("slot %d: a new revision in cell %s has version %v, and there was %v", slot, cell, w.highest[slot], before)
	}
}

func (w *ownersWorld) anySlot() Slot { return Slot(rapid.IntRange(0, 19).Draw(w.t, "slot")) }

func (w *ownersWorld) write(*rapid.T) {
	slot := w.anySlot()
	cell := w.m.Name(w.m.Route(slot).New)
	if object, found := w.objects[slot]; found {
		cell = object.cell
	}
	w.store(slot, cell)
}

func (w *ownersWorld) delete(*rapid.T) { delete(w.objects, w.anySlot()) }

func (w *ownersWorld) move(*rapid.T) { w.moveOne(w.anySlot()) }

func (w *ownersWorld) moveOne(slot Slot) {
	object, found := w.objects[slot]
	if route := w.m.Route(slot); found && w.m.Name(route.New) != object.cell {
		w.store(slot, w.m.Name(route.New))
	}
}

func (w *ownersWorld) moving() bool {
	return slices.ContainsFunc(w.cells, func(c Cell) bool { return c.State == In || c.State == Out || c.TargetWeight != 0 })
}

func (w *ownersWorld) owning() int {
	n := 0
	for _, cell := range w.cells {
		if cell.State == Normal || cell.State == In {
			n++
		}
	}
	return n
}

// begin starts a change: cells join, leave and change their weights, perhaps several at once.
func (w *ownersWorld) begin(t *rapid.T) {
	if w.moving() {
		return // a change is under way
	}
	cells := slices.Clone(w.cells)
	for i := range cells {
		switch rapid.IntRange(0, 5).Draw(t, "change of "+cells[i].Name) {
		case 0:
			if cells[i].State == Normal && w.owning() > 1 && !slices.ContainsFunc(cells, func(c Cell) bool { return c.State == Out }) {
				cells[i].State = Out
			}
		case 1:
			cells[i].TargetWeight = rapid.Int32Range(1, 9).Draw(t, "target weight")
		}
	}
	if rapid.Bool().Draw(t, "join") {
		cells = append(cells, Cell{Name: w.name(), Weight: 2, State: In})
	}
	w.apply(cells)
}

// finish ends a change after everything has moved.
func (w *ownersWorld) finish(*rapid.T) {
	if !w.moving() {
		return // no change is under way
	}
	for _, slot := range slices.Sorted(maps.Keys(w.objects)) {
		w.moveOne(slot)
	}
	var cells []Cell
	for _, cell := range w.cells {
		if cell.State == Out {
			continue
		}
		if cell.State == In {
			cell.State = Normal
		}
		cells = append(cells, Cell{Name: cell.Name, Weight: cmp.Or(cell.TargetWeight, cell.Weight), State: cell.State})
	}
	w.apply(cells)
}

// reverse turns a change round.
func (w *ownersWorld) reverse(*rapid.T) {
	if !w.moving() {
		return // no change is under way
	}
	cells := slices.Clone(w.cells)
	for i := range cells {
		switch cells[i].State {
		case In:
			cells[i].State = Out
		case Out:
			cells[i].State = In
		}
		if target := cells[i].TargetWeight; target != 0 {
			cells[i].Weight, cells[i].TargetWeight = target, cells[i].Weight
		}
	}
	if !slices.ContainsFunc(cells, func(c Cell) bool { return c.State == Normal || c.State == In }) {
		return // no cell would be left
	}
	w.apply(cells)
}

// fail loses a cell. Its objects appear in a cell that owns their slots now.
func (w *ownersWorld) fail(t *rapid.T) {
	i := rapid.IntRange(0, len(w.cells)-1).Draw(t, "failing cell")
	if state := w.cells[i].State; state == Failed || state != Out && w.owning() < 2 {
		return // the last cell
	}
	cells := slices.Clone(w.cells)
	cells[i].State, cells[i].TargetWeight = Failed, 0
	lost := cells[i].Name
	w.apply(cells)
	for _, slot := range slices.Sorted(maps.Keys(w.objects)) {
		if w.objects[slot].cell == lost {
			owner := w.m.Route(slot).Old
			if rapid.Bool().Draw(t, "promoted at the destination") {
				owner = w.m.Route(slot).New
			}
			w.store(slot, w.m.Name(owner))
		}
	}
}

// TestVersionsGrow checks that whatever happens to the topology, no object is shown with a lower version than before, and no two revisions of
// a name have the same.
func TestVersionsGrow(t *testing.T) {
	check(t, func(t *rapid.T) {
		w := &ownersWorld{t: t, revisions: map[string]int{}, objects: map[Slot]stored{}, highest: map[Slot]shown{}}
		w.apply([]Cell{{Name: w.name(), Weight: 2}, {Name: w.name(), Weight: 1}})
		t.Repeat(map[string]func(*rapid.T){
			"write": w.write, "delete": w.delete, "move": w.move,
			"begin": w.begin, "finish": w.finish, "reverse": w.reverse, "fail": w.fail,
		})
	})
}

// TestVersionsStay checks that an object that did not move keeps its version, except when a change is reversed or a cell fails.
func TestVersionsStay(t *testing.T) {
	check(t, func(t *rapid.T) {
		cells := someCells(t, 2)
		before := nextOwners(t, nil, 1, cells)
		joining := append(slices.Clone(cells), Cell{Name: "zz-joins", Weight: 3, State: In})
		moving := nextOwners(t, before, 2, joining)
		again := nextOwners(t, moving, 3, joining) // another field of the topology was edited
		joining[len(joining)-1].State = Normal
		after := nextOwners(t, again, 4, joining)
		m, _ := Compile(5, joining)
		for slot := range Slot(Count) {
			for _, cell := range cells {
				number := before.Number(cell.Name)
				since := before.Since(slot, number)
				if since == 0 {
					continue
				}
				if moving.Since(slot, number) != since || again.Since(slot, number) != since {
					t.Fatalf("slot %d: an object in cell %s has got another version", slot, cell.Name)
				}
				if m.Name(m.Route(slot).New) == cell.Name && after.Since(slot, number) != since {
					t.Fatalf("slot %d: an object that stays in cell %s has got another version", slot, cell.Name)
				}
			}
			joined := moving.Number("zz-joins")
			if since := moving.Since(slot, joined); since != again.Since(slot, joined) || since != after.Since(slot, joined) {
				t.Fatalf("slot %d: an object that has moved has got another version", slot)
			}
		}
	})
}

func nextOwners(t *rapid.T, o *Owners, epoch int64, cells []Cell) *Owners {
	m, err := Compile(epoch, cells)
	if err != nil {
		t.Fatal(err)
	}
	next, err := o.Next(m)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestOwnersEncode(t *testing.T) {
	check(t, func(t *rapid.T) {
		o := nextOwners(t, nextOwners(t, nil, 1, someCells(t, 2)), 2, someCells(t, 2))
		data, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := DecodeOwners(data)
		if err != nil {
			t.Fatal(err)
		}
		if decoded.epoch != o.epoch || decoded.change != o.change || decoded.number != o.number || !maps.Equal(decoded.cells, o.cells) || decoded.slots != o.slots {
			t.Error("the decoded owners differ")
		}
		if len(data) > 64<<10 {
			t.Errorf("the table takes %d bytes", len(data))
		}
		if _, err := DecodeOwners(data[:len(data)-rapid.IntRange(1, len(data)).Draw(t, "cut")]); err == nil {
			t.Error("a truncated table was decoded")
		}
	})
}

// TestNumbersAreNotReused checks that a cell that returns, or a new one of the same name, has another number.
func TestNumbersAreNotReused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := Cell{Name: "a", Weight: 1}, Cell{Name: "b", Weight: 1}
		o := nextOwners(t, nil, 1, []Cell{a, b})
		first := o.Number("b")
		failed := b
		failed.State = Failed
		o = nextOwners(t, o, 2, []Cell{a, failed})
		o = nextOwners(t, o, 3, []Cell{a})
		returned := b
		returned.State = In
		o = nextOwners(t, o, 4, []Cell{a, returned})
		if o.Number("b") == first || o.Number("b") == o.Number("a") {
			t.Errorf("the cell that returned has number %d, and had %d", o.Number("b"), first)
		}
	})
}
