package router

import (
	"context"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// slotOf returns the slot of an object of the call's resource. A derived object takes that of its template, which a label tells, or
// the name of a binding.
func (rt *Router) slotOf(c *call, name, label string) slots.Slot {
	return rt.slotIn(c.placement, c.Namespace, name, label)
}

func (rt *Router) slotIn(place placement.Place, namespace, name, label string) slots.Slot {
	switch place {
	case placement.Anywhere:
		if slot, err := slots.ParseHint(label); err == nil {
			return slot
		}
	case placement.ByTemplate:
		if catalog := rt.Kinds.Catalog(); catalog != nil {
			if candidates := catalog.Kinds.OfBinding(namespace, name); len(candidates) > 0 {
				return candidates[0]
			}
		}
	}
	return slots.Of(namespace, name)
}

// state is what a cell has of an object.
type state int

const (
	// absent: nothing, or what a move has left behind.
	absent state = iota
	// active: the object.
	active
	// frozen: an object on its way to another cell, or its copy there that is not active yet.
	frozen
)

// sight is what has been seen of an object.
type sight struct {
	cell  slots.Index
	state state
	// version is the object's resourceVersion, and uid tells it from others of its name.
	version, uid string
}

// look asks a cell for an object, as the gateway: whether the user may see it has been decided before.
func (rt *Router) look(ctx context.Context, c *call, cell slots.Index, name string) (sight, error) {
	object, err := rt.metadata(ctx, c, cell, name)
	switch {
	case apierrors.IsNotFound(err):
		return sight{cell: cell}, nil
	case err != nil:
		return sight{cell: cell}, err
	}
	return sight{cell: cell, state: stateOf(object.Labels[names.RebalanceStatusLabel]), version: object.ResourceVersion, uid: string(object.UID)}, nil
}

func stateOf(status string) state {
	switch status {
	case names.RebalanceMigrated:
		return absent
	case "":
		return active
	default:
		return frozen
	}
}

// find looks for the call's object where it can be. An object that is nowhere is absent in the cell where it would be made.
func (rt *Router) find(ctx context.Context, c *call) (sight, error) {
	seen, err := rt.findOn(ctx, c, c.view.Locate(rt.slotOf(c, c.Name, "")))
	if err != nil || seen.state != absent || c.placement == placement.ByName {
		return seen, err
	}
	return rt.findElsewhere(ctx, c, seen)
}

// findOn looks for an object on its way. It is in the new cell, or in the old one; if it is in neither it may have gone from one to the
// other meanwhile, but it never goes back.
func (rt *Router) findOn(ctx context.Context, c *call, route slots.Route) (sight, error) {
	seen, err := rt.look(ctx, c, route.New, c.Name)
	if err != nil || seen.state == active || !route.Moving() {
		return seen, err
	}
	if seen, err = rt.look(ctx, c, route.Old, c.Name); err != nil || seen.state != absent {
		return seen, err
	}
	return rt.look(ctx, c, route.New, c.Name)
}

// findElsewhere asks all cells for a derived object whose name tells too little.
func (rt *Router) findElsewhere(ctx context.Context, c *call, nowhere sight) (sight, error) {
	cells := c.view.Cells()
	seen := make([]sight, len(cells))
	var group errgroup.Group
	for i, cell := range cells {
		group.Go(func() (err error) {
			seen[i], err = rt.look(ctx, c, cell, c.Name)
			return err
		})
	}
	err := group.Wait()
	best := nowhere
	for _, s := range seen {
		if s.state == active || (s.state == frozen && best.state == absent) {
			best = s
		}
	}
	if best.state != absent {
		err = nil
	}
	return best, err
}

// locate returns the cell of an object.
func (rt *Router) locate(ctx context.Context, c *call) (slots.Index, error) {
	if c.placement == placement.ByName {
		if route := c.view.Locate(slots.Of(c.Namespace, c.Name)); !route.Moving() {
			return route.New, nil
		}
	}
	seen, err := rt.find(ctx, c)
	return seen.cell, err
}
