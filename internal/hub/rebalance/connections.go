package rebalance

import (
	"context"
	"sync"

	"github.com/cellplane/cellplane/internal/cellconn"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fence"
)

// Connections are the connections to the cells, with what is kept for each of them while it lasts.
type Connections struct {
	// Pool holds the connections themselves, and closes them.
	Pool *cellconn.Pool

	mu   sync.Mutex
	open map[string]*connection
}

// connection is all that leads to one cell.
type connection struct {
	cell *cellconn.Cell

	store    *cellstore.Store
	fence    *fence.Cell
	reader   *reader
	readable readable // for checkKeys
}

// Store returns the connection to the store of a cell. The caller must not close it.
func (c *Connections) Store(ctx context.Context, cell string) (*cellstore.Store, error) {
	return c.Pool.Store(ctx, cell)
}

// to returns the connection to a cell.
func (c *Connections) to(ctx context.Context, name string) (*connection, error) {
	cell, err := c.Pool.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[name]; known != nil && known.cell == cell {
		return known, nil
	}
	made := &connection{cell: cell}
	config, err := cell.Config()
	if err != nil {
		return nil, err
	}
	if made.reader, err = newReader(name, config); err != nil {
		return nil, err
	}
	if made.fence, err = cell.Fence(); err != nil {
		return nil, err
	}
	if made.store, err = cell.Store(); err != nil {
		return nil, err
	}
	if c.open == nil {
		c.open = map[string]*connection{}
	}
	c.open[name] = made
	return made, nil
}
