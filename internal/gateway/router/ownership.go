package router

import (
	"strings"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// chooser decides which cell's object a list shows. Cells also hold copies of objects of the hub, things of their own such as
// default/kubernetes, and what moves leave behind; of one key the client must see one object.
func (rt *Router) chooser(c *call, cells []slots.Index) func([]*splice.Item) int {
	return func(candidates []*splice.Item) int {
		best := -1
		for i, candidate := range candidates {
			if c.placement == kinds.ByName && !c.owns(cells[candidate.Source], candidate.Key()) {
				continue
			}
			if len(candidates) == 1 && !c.moving(candidate.Key()) {
				return i
			}
			object, err := candidate.Object()
			if err != nil || object.Label(names.RebalanceStatusLabel) == names.RebalanceMigrated {
				continue
			}
			// A copy that is not active yet gives way to the original.
			if best < 0 || object.Label(names.RebalanceStatusLabel) == "" {
				best = i
			}
		}
		return best
	}
}

// owns reports whether the object of a key may be in a cell.
func (c *call) owns(cell slots.Index, key string) bool {
	route := c.view.Locate(slotOf(key))
	return cell == route.New || cell == route.Old
}

// moving reports whether an object may have left something behind: that is looked at until the next topology, in which nothing moves.
func (c *call) moving(key string) bool { return c.view.Locate(slotOf(key)).Moving() }

// slotOf returns the slot of a key `namespace/name`.
func slotOf(key string) slots.Slot {
	namespace, name, _ := strings.Cut(key, "/")
	return slots.Of(namespace, name)
}
