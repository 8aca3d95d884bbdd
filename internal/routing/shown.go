package routing

import (
	"strconv"
	"strings"

	"github.com/cellplane/cellplane/internal/slots"
)

// Copy is one of several objects of the same name that cells have listed.
type Copy struct {
	Cell slots.Index
	// Label is the value of the rebalance label.
	Label string
	// CopiedAt is the annotation with the cell and the resourceVersion of the copy of a moved object.
	CopiedAt string
}

// rank orders copies by how well they represent the object in a list. The highest is shown.
type rank int

const (
	// hidden: a moved object, whose copy is in the list too.
	hidden rank = iota
	// outdated: a moved object whose copy was made after the list was read.
	outdated
	// frozen: an original or a copy during the move.
	frozen
	// elsewhere: a live object outside of the cell that new objects of its name are created in.
	elsewhere
	// owned: a live object in that cell.
	owned
)

// Shown returns the index of the copy that a list shows, -1 for none. New objects of its name are created in the cell home. Versions are the
// resourceVersions at which the list shows the cells, by their index; 0 for those that it does not show.
func (v *View) Shown(home slots.Index, copies []Copy, versions []uint64) int {
	best, highest := -1, hidden
	for i := range copies {
		if r := v.rank(home, &copies[i], versions); r > highest {
			best, highest = i, r
		}
	}
	return best
}

func (v *View) rank(home slots.Index, c *Copy, versions []uint64) rank {
	switch StateOf(c.Label) {
	case Frozen:
		return frozen
	case Live:
		if c.Cell == home {
			return owned
		}
		return elsewhere
	}
	if name, version, ok := ParsePlace(c.CopiedAt); ok {
		if other, found := v.Index(name); found && versions[other] != 0 && versions[other] < version {
			return outdated
		}
	}
	return hidden
}

// ParsePlace reads an annotation of the form `cell/resourceVersion`.
func ParsePlace(annotation string) (cell string, version uint64, ok bool) {
	cell, text, found := strings.Cut(annotation, "/")
	version, err := strconv.ParseUint(text, 10, 63)
	return cell, version, found && err == nil && version > 0
}

// Owns reports whether a slot's objects may be in a cell.
func (v *View) Owns(cell slots.Index, slot slots.Slot) bool {
	route := v.Locate(slot)
	return cell == route.New || cell == route.Old
}
