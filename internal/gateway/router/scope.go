package router

import (
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
)

// leg is where a request goes, and in whose name.
type leg struct {
	cell slots.Index
	// epoch is that of the map which leads there.
	epoch int64
	// existing keeps the request from creating anything.
	existing bool
	// pinned is the resourceVersion that the object must still have; "" means any.
	pinned string
}

// scope is how requests to cells are marked. Without a leg they are marked by the map that they are routed by.
func (c *call) scope() forward.Scope {
	if c.leg == nil {
		return forward.ToCell(c.view.Epoch())
	}
	scope := forward.ToCell(c.leg.epoch)
	scope.Existing = c.leg.existing
	return scope
}
