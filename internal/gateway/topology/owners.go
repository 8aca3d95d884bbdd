package topology

import (
	"github.com/cellplane/cellplane/internal/slots"
)

// sameOwners reports whether every slot's objects are where they were.
func sameOwners(a, b *View) bool {
	for slot := range slots.Slot(slots.Count) {
		before, after := a.Locate(slot), b.Locate(slot)
		if before.Moving() || after.Moving() || a.Name(before.New) != b.Name(after.New) {
			return false
		}
	}
	return true
}
