package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
)

// Cells are the connections to the cells of a topology. They outlive a change of the topology where a cell's endpoint stays the same.
type Cells struct {
	// Connections is the number of connections to each cell; 0 means a few.
	Connections int

	mu   sync.Mutex
	open map[string]*Upstream
}

// Connect returns connections to exactly the given cells, in the order of names. Those of cells no longer named are closed. What is
// wrong with one cell does not keep the others from being connected; its place is nil, and the error says why.
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

func (e Endpoint) equal(other Endpoint) bool {
	return e.Server == other.Server && e.ServerName == other.ServerName &&
		bytes.Equal(e.CA, other.CA) && bytes.Equal(e.Cert, other.Cert) && bytes.Equal(e.Key, other.Key)
}
