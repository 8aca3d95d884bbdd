package backup

import (
	"bytes"
	"strings"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// Root is the prefix of copies in the store of a backup cell: Root + cell + "/" + the key in the cell, without its
// prefix.
const Root = cellstore.BackupRoot

// Prefix of the copies of a cell.
func Prefix(cell string) string { return Root + cell + "/" }

// CellFor returns the backup cell of an object in a cell. It is slots.None if there is none: the object is not
// federated, is a stale copy of a move, is in a cell that does not own it, or there is no other cell.
func CellFor(topology *slots.Map, cell slots.Index, object *cellstore.Object) slots.Index {
	class, slot := cellstore.Classify(object)
	if !class.Federated() || isStale(object) {
		return slots.None
	}
	return cellForSlot(topology, cell, slot)
}

// cellForSlot returns the backup cell of a slot's objects in a cell.
func cellForSlot(topology *slots.Map, cell slots.Index, slot slots.Slot) slots.Index {
	return topology.Route(slot).BackupOf(cell)
}

// placements are the backup cells of the objects of a cell, by slot.
type placements [slots.Count]slots.Index

// placementsOf returns the backup cells of the objects of a cell in a topology.
func placementsOf(topology *slots.Map, cell slots.Index) *placements {
	var places placements
	for slot := range places {
		places[slot] = cellForSlot(topology, cell, slots.Slot(slot))
	}
	return &places
}

// isStale reports whether an object has moved to another cell.
func isStale(object *cellstore.Object) bool {
	return object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated
}

// mayBeStale reports whether a value may be a stale copy. It need not be exact.
func mayBeStale(value []byte) bool { return bytes.Contains(value, statusLabel) }

var statusLabel = []byte(names.RebalanceStatusLabel)

// ignored reports whether a key is never federated, by its first segments, so that its value need not be parsed.
// Works are the most frequent writes of a cell.
func ignored(relative string) bool {
	for _, prefix := range []string{"work.karmada.io/works/", "events/", "leases/", "masterleases/"} {
		if strings.HasPrefix(relative, prefix) {
			return true
		}
	}
	return false
}
