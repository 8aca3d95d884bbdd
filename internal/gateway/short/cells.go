package short

import (
	"reflect"

	"github.com/cellplane/cellplane/internal/fleet"
)

// Cells are the connections to the cells of a topology. A connection is kept while the cell's endpoint stays the same. The zero value is
// ready for use. It is not safe for concurrent use.
type Cells struct {
	open map[string]*Connections
}

// Connect returns connections to the given cells, in the order of names, and closes all others. A cell that cannot be connected to is
// nil in the result: its requests take the ordinary path.
func (c *Cells) Connect(names []string, endpoints map[string]fleet.Endpoint) []*Connections {
	connected := make(map[string]*Connections, len(names))
	connections := make([]*Connections, len(names))
	for i, name := range names {
		endpoint := endpoints[name]
		known := c.open[name]
		if known == nil || !reflect.DeepEqual(known.endpoint, endpoint) {
			var err error
			if known, err = New(endpoint); err != nil {
				continue // fleet.Cells reports the reason
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
