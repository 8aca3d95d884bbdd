package durability

import (
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/slots"
)

func compiled(t *testing.T, epoch int64, cells ...slots.Cell) *slots.Map {
	t.Helper()
	for i := range cells {
		cells[i].Weight = 1
	}
	m, err := slots.Compile(epoch, cells)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// known are topologies by epoch.
func known(maps ...*slots.Map) topologies {
	return func(epoch int64) []*slots.Map {
		for i, m := range maps {
			if m.Epoch() == epoch {
				return maps[i:]
			}
		}
		return nil
	}
}

// slotOf returns a slot with an owner and a backup cell.
func slotOf(t *testing.T, m *slots.Map, owner, backup string) slots.Slot {
	t.Helper()
	for slot := range slots.Slot(slots.Count) {
		if r := m.Route(slot); m.Name(r.New) == owner && m.Name(r.Backup) == backup {
			return slot
		}
	}
	t.Fatalf("no slot of %s is backed up by %s", owner, backup)
	return 0
}

// TestHas checks what proves that a backup cell has a write.
func TestHas(t *testing.T) {
	a, b, c := slots.Cell{Name: "a"}, slots.Cell{Name: "b"}, slots.Cell{Name: "c"}
	failedA, failedB := a, b
	failedA.State, failedB.State = slots.Failed, slots.Failed
	three := compiled(t, 5, a, b, c)
	slot := slotOf(t, three, "a", "b")
	got := func(epoch, revision int64) durability.Received {
		return durability.Received{Source: "a", Revision: revision, Epoch: epoch, Time: time.Unix(revision, 0)}
	}
	for _, test := range []struct {
		name     string
		where    string
		record   durability.Received
		known    topologies
		revision int64
		want     bool
	}{
		{"it has the write", "b", got(5, 10), known(three), 10, true},
		{"it has more", "b", got(5, 11), known(three), 10, true},
		{"it does not have it yet", "b", got(5, 9), known(three), 10, false},
		{"another cell has other slots", "c", got(5, 10), known(three), 10, false},
		{"by a topology that this gateway does not know", "b", got(6, 10), known(three), 10, false},
		{"by a former topology, in the same place", "b", got(4, 10), known(compiled(t, 4, a, b, c), three), 10, true},
		{"by a former topology, before the cell failed and returned", "b", got(3, 10), known(compiled(t, 3, a, b, c), compiled(t, 4, failedA, b, c), three), 10, false},
		{"by a former topology, in a cell that has failed", "b", got(5, 10), known(three, compiled(t, 6, a, failedB, c)), 10, false},
		{"the cell has failed", "b", got(5, 10), known(three, compiled(t, 6, failedA, b, c)), 10, false},
		{"the cell has left", "b", got(5, 10), known(three, compiled(t, 6, b, c)), 10, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r records
			r.set(test.where, []durability.Received{test.record}, time.Unix(100, 0))
			if got := r.has(test.known, "a", slot, test.revision); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// TestStanding checks when a write is sent at all: after the record has been seen to change, not because it is there.
func TestStanding(t *testing.T) {
	two := compiled(t, 5, slots.Cell{Name: "a"}, slots.Cell{Name: "b"})
	slot := slotOf(t, two, "a", "b")
	start := time.Unix(100, 0)
	now := start
	var r records
	expect := func(what string, want standing) {
		t.Helper()
		if got, _ := r.standing(known(two), "a", slot, now); got != want {
			t.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	record := durability.Received{Source: "a", Revision: 7, Epoch: 5}
	expect("nothing is known", absent)
	r.set("b", nil, now)
	expect("there is no record", absent)
	r.forget("b")
	r.set("b", []durability.Received{record}, now)
	expect("a record of unknown age", undecided)
	now = now.Add(renewedWithin)
	r.set("b", []durability.Received{record}, now)
	expect("it does not change", silent)
	record.Time = now
	r.update("b", record, now)
	expect("it has changed", renewed)
	now = now.Add(renewedWithin - 1)
	r.update("b", record, now)
	expect("it has changed a while ago", renewed)
	now = now.Add(1)
	expect("it no longer changes", silent)
	record.Revision++
	r.set("b", []durability.Received{record}, now)
	expect("it had changed when all were read again", renewed)
	r.remove("b", "a")
	expect("it is gone", absent)
	r.update("b", record, now)
	expect("it is back", renewed)
	r.forget("b")
	expect("the backup cell is gone", absent)
	r.update("b", record, now)
	expect("a late event", absent)
}

func TestInUse(t *testing.T) {
	var r records
	now := time.Unix(1e9, 0)
	expect := func(when string, want bool) {
		t.Helper()
		if got := r.inUse("a", 7, now); got != want {
			t.Errorf("%s: an object may ask for durability: %v, want %v", when, got, want)
		}
	}
	unused := durability.Received{Source: "a", Epoch: 7}
	expect("nothing is known of the cell", true)
	r.set("b", []durability.Received{unused}, now)
	expect("how old the record is, is not known", true)
	unused.Revision++
	r.update("b", unused, now)
	expect("no object does", false)
	now = now.Add(renewedWithin)
	expect("the record is late", true)
	unused.Revision, unused.Epoch = unused.Revision+1, 6
	r.update("b", unused, now)
	expect("the record is of an earlier topology", true)
	unused.Revision, unused.Epoch = unused.Revision+1, 8
	r.update("b", unused, now)
	expect("the record is of a later topology", false)
	r.set("c", []durability.Received{{Source: "a", Epoch: 7}}, now)
	expect("another record is late", false)
	r.set("d", []durability.Received{{Source: "a", InUse: true}}, now)
	expect("an object does", true)
}
