package router

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// slotOf returns the slot of an object of the call's resource. A derived object takes that of its template, which a label holds or the
// name of a binding suggests.
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

// sighting is what a cell has under a name.
type sighting struct {
	state routing.State
	// version is the object's resourceVersion. The uid distinguishes it from others of its name. If it has moved, copiedAt is the annotation with
	// the position of its copy.
	version, uid, copiedAt string
}

// look reads an object's metadata from a cell as the gateway: whether the user may see the object has been decided before.
func (rt *Router) look(ctx context.Context, c *call, cell slots.Index, name string) (sighting, error) {
	object, err := rt.metadata(ctx, c, cell, name)
	switch {
	case apierrors.IsNotFound(err):
		return sighting{}, nil
	case err != nil:
		return sighting{}, err
	}
	return sighting{
		routing.StateOf(object.Labels[names.RebalanceStatusLabel]), object.ResourceVersion, string(object.UID), object.Annotations[names.CopiedAtAnnotation],
	}, nil
}

// locate returns the cell of an object.
func (rt *Router) locate(ctx context.Context, c *call) (slots.Index, error) {
	verdict, err := rt.drive(ctx, c, rt.request(c, routing.Stream, c.Name, ""), c.Name, exchange{})
	return verdict.Cell, err
}

// scope marks requests to cells with an epoch: that of the write being sent, otherwise that of the view. The hub needs none.
func (c *call) scope(cell slots.Index) forward.Scope {
	if c.isHub(cell) {
		return forward.Hub
	}
	if c.write == nil {
		return forward.ToCell(c.view.Epoch())
	}
	scope := forward.ToCell(c.write.Epoch)
	scope.Existing, scope.Durable = c.write.Existing, c.durable
	return scope
}
