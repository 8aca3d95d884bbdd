package rebalance

import (
	"maps"
	"testing"

	"github.com/cellplane/cellplane/internal/slots"
)

// TestNextOwners publishes the owners of one epoch after the other, as hub managers do that crash, are repeated and overtake each other.
func TestNextOwners(t *testing.T) {
	cells := []slots.Cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}
	topology := func(epoch int64, cells ...slots.Cell) *slots.Map {
		m, err := slots.Compile(epoch, cells)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	publish := func(before map[string][]byte, m *slots.Map) map[string][]byte {
		t.Helper()
		after, changed, err := nextOwners(before, m)
		if err != nil || !changed {
			t.Fatalf("publishing epoch %d: changed %v, %v", m.Epoch(), changed, err)
		}
		return after
	}
	ownersOf := func(data map[string][]byte, epoch int64) *slots.Owners {
		t.Helper()
		owners, err := slots.PublishedOwners(data, epoch)
		if err != nil || owners == nil {
			t.Fatalf("the owners of epoch %d: %v, %v", epoch, owners, err)
		}
		return owners
	}
	// An existing federation begins with whatever topology it has, also in the middle of a change.
	data := publish(nil, topology(5, append(cells, slots.Cell{Name: "c", Weight: 1, State: slots.In})...))
	first := ownersOf(data, 5)
	if first.Number("a") == 0 || first.Number("c") == 0 {
		t.Error("cells have no numbers")
	}
	// Repeating it changes nothing.
	if again, changed, err := nextOwners(data, topology(5, cells...)); err != nil || changed || !maps.EqualFunc(again, data, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Errorf("publishing an epoch again: changed %v, %v", changed, err)
	}
	// The next epoch follows from the last. Cells keep their numbers.
	data = publish(data, topology(7, append(cells, slots.Cell{Name: "c", Weight: 1})...))
	if next := ownersOf(data, 7); next.Number("c") != first.Number("c") {
		t.Error("a cell has another number in the next epoch")
	}
	// A hub manager that still works at an epoch that was skipped is refused.
	if _, _, err := nextOwners(data, topology(6, cells...)); err == nil {
		t.Error("an earlier epoch was published after a later one")
	}
	// Only the last epochs stay.
	for epoch := int64(8); epoch < 30; epoch++ {
		data = publish(data, topology(epoch, cells...))
	}
	if epochs, err := slots.PublishedEpochs(data); err != nil || len(epochs) != keptOwners || epochs[0] != 30-keptOwners || epochs[keptOwners-1] != 29 {
		t.Errorf("published are the epochs %v, %v", epochs, err)
	}
	if _, _, err := nextOwners(map[string][]byte{"epoch-1": []byte("x")}, topology(2, cells...)); err == nil {
		t.Error("owners that cannot be decoded were followed")
	}
}
