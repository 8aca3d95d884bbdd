package short

import (
	"reflect"

	"github.com/cellplane/cellplane/internal/fleet"
)

// Cells are the connections to the cells of a topology. They outlive a change of the topology where a cell's endpoint stays the same.
// The zero value is ready; it must not be used by two at once.
type Cells struct {
	open map[string]*Connections
}

// Connect returns connections to exactly the given cells, in the order of names, and nil for a cell that has none: its requests go the
// other way. Those of cells no longer named are closed.
func (c *Cells) Connect(names []string, endpoints map[string]fleet.Endpoint) []*Connections {
	connected := make(map[string]*Connections, len(names))
	connections := make([]*Connections, len(names))
	for i, name := range names {
		endpoint := endpoints[name]
		known := c.open[name]
		if known == nil || !reflect.DeepEqual(known.endpoint, endpoint) {
			var err error
			if known, err = New(endpoint); err != nil {
				continue // what is wrong with it is told of the other way
			}
		}
		connected[name], connections[i] = known, known
	}
	for name, known := range c.open {
		if connected[name] != known {
			known.Close()
		}
	}
	c.open = connected
	return connections
}
