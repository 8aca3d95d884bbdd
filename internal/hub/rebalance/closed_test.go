package rebalance

import (
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/slots"
)

// TestClosedConnection closes the connections to cells while a slot moves. That is not retried: nothing opens them again but the change.
func TestClosedConnection(t *testing.T) {
	topology, err := slots.Compile(1, []slots.Cell{{Name: "cell-a", Weight: 1}, {Name: "cell-b", Weight: 1, State: slots.In}})
	if err != nil {
		t.Fatal(err)
	}
	m := &Mover{Topology: topology, Stores: map[string]*cellstore.Store{}, pace: newPace(1), indexes: map[string]*index{}, stores: map[string]*sharedStore{}}
	for _, name := range []string{"cell-a", "cell-b"} {
		store := storetest.Closed(t, name)
		m.Stores[name], m.indexes[name] = store, newIndex(store)
		m.stores[name] = newSharedStore(t.Context(), store, 1, func(time.Duration) {})
		defer m.stores[name].close()
	}
	slot := topology.Flows()[0].Slots[0]
	m.indexes["cell-b"].copies[slot] = []string{"/registry/configmaps/shop/a"}
	if err := m.moveSlot(t.Context(), slot); err == nil {
		t.Error("the slot has moved")
	}
}
