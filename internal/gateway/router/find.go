package router

import (
	"context"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/slots"
)

// hintedSlot returns the slot of an object whose own name does not tell.
func (rt *Router) hintedSlot(c *call, name, label string) (slots.Slot, bool) {
	switch c.placement {
	case kinds.Anywhere:
		slot, err := slots.ParseHint(label)
		return slot, err == nil
	case kinds.ByTemplate:
		if catalog := rt.Kinds.Catalog(); catalog != nil {
			if candidates := catalog.Kinds.OfBinding(c.Namespace, name); len(candidates) > 0 {
				return candidates[0], true
			}
		}
	}
	return 0, false
}

// find looks for an object that may be in several cells: first where it most likely is, then everywhere. An object that is nowhere
// belongs to the first of them.
func (rt *Router) find(ctx context.Context, c *call) (slots.Index, error) {
	likely := rt.likely(c)
	for _, cell := range likely {
		found, err := rt.holds(ctx, c, cell)
		if err != nil {
			return 0, err
		}
		if found {
			return cell, nil
		}
	}
	if c.placement == kinds.ByName {
		return likely[len(likely)-1], nil
	}
	others := c.view.Cells()
	found := make([]bool, len(others))
	var group errgroup.Group
	for i, cell := range others {
		group.Go(func() (err error) {
			found[i], err = rt.holds(ctx, c, cell)
			return err
		})
	}
	err := group.Wait()
	for i, cell := range others {
		if found[i] {
			return cell, nil
		}
	}
	return likely[0], err
}

// likely returns the cells in which an object most likely is. For one that moves they are the old one and the new one.
func (rt *Router) likely(c *call) []slots.Index {
	slot := slots.Of(c.Namespace, c.Name)
	if hinted, ok := rt.hintedSlot(c, c.Name, ""); ok {
		slot = hinted
	}
	route := c.view.Locate(slot)
	if route.Moving() {
		return []slots.Index{route.Old, route.New}
	}
	return []slots.Index{route.New}
}

// holds asks a cell whether it has an object that has not moved away. The answer is the gateway's own question: whether the user may
// see the object has been decided before.
func (rt *Router) holds(ctx context.Context, c *call, cell slots.Index) (bool, error) {
	metadata, err := rt.metadata(ctx, c, cell, c.Name)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return !movedAway(metadata), nil
}
