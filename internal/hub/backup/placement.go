package backup

import (
	"strings"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// Root is where copies lie in the store of a keeper: Root + cell + "/" + the key in the cell, without its prefix.
const Root = "/cellplane/backup/"

// Prefix is where the copies of a cell lie.
func Prefix(cell string) string { return Root + cell + "/" }

// Keeper returns the cell that keeps the copy of an object stored in a cell. It is slots.None if nobody does: the object is not
// federated, is what a move has left behind, does not belong where it is, or there is no other cell.
func Keeper(topology *slots.Map, cell slots.Index, object *cellstore.Object) slots.Index {
	class, slot := cellstore.Classify(object)
	if !class.Federated() || isLeftover(object) {
		return slots.None
	}
	return keeperOf(topology, cell, slot)
}

// keeperOf returns the cell that keeps the copies of a slot's objects in a cell.
func keeperOf(topology *slots.Map, cell slots.Index, slot slots.Slot) slots.Index {
	switch route := topology.Route(slot); cell {
	case route.New:
		return route.Backup
	case route.Old:
		return route.OldBackup
	default:
		return slots.None
	}
}

// isLeftover reports whether an object is what a move has left behind.
func isLeftover(object *cellstore.Object) bool {
	return object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated
}

// ignored reports keys that are never federated, by their first segments: they need not be parsed. Works are the most frequent writes
// of a cell.
func ignored(relative string) bool {
	for _, prefix := range []string{"work.karmada.io/works/", "events/", "leases/", "masterleases/"} {
		if strings.HasPrefix(relative, prefix) {
			return true
		}
	}
	return false
}
