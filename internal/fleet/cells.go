package fleet

import (
	"errors"
	"fmt"
	"sync"
)

// Cells are a gateway's connections to the cells of a topology. A connection is kept while the cell's endpoint stays the same.
type Cells struct {
	// Connections is the number of connections to each cell; 0 means the default.
	Connections int

	mu   sync.Mutex
	open map[string]*Upstream
}

// Connect returns connections to the given cells, in the order of names, and closes all others. A cell that cannot be connected to is
// nil in the result, and the error tells why; the others are connected all the same.
func (c *Cells) Connect(names []string, endpoints map[string]Endpoint) ([]*Upstream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	connected := make(map[string]*Upstream, len(names))
	upstreams := make([]*Upstream, len(names))
	var errs []error
	for i, name := range names {
		endpoint, found := endpoints[name]
		if !found {
			errs = append(errs, fmt.Errorf("cell %s has no endpoint", name))
			continue
		}
		upstream := c.open[name]
		if upstream == nil || !upstream.endpoint.equal(endpoint) {
			var err error
			if upstream, err = NewUpstream(name, endpoint, c.Connections); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		connected[name], upstreams[i] = upstream, upstream
	}
	for name, upstream := range c.open {
		if connected[name] != upstream {
			upstream.Close()
		}
	}
	c.open = connected
	return upstreams, errors.Join(errs...)
}
