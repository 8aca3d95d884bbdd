package rebalance

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// strays tells which objects in the cells that get slots were stored there although the slots belonged to others: creations that were admitted
// before a slot left and stored afterwards, and what engines made of them. The mover would take them for newer than the objects that return.
//
// What is a stray depends on the epoch in force, by which gateways route. It can be told until the next one is in force: then creations in
// these cells are acknowledged.
type strays struct {
	compiled *slots.Map
	// former are the owners in the epoch in force.
	former *slots.Owners
	// leftovers means that slots have left cells, and that what was stored there since has not been removed.
	leftovers bool
	// rivals are the keys of active objects, by the cell that the slot is leaving in the epoch in force. They are in the cell that gets it in
	// that epoch.
	rivals map[slots.Index]map[string]struct{}
}

// has reports whether an object in a cell that gets its slot is a stray.
func (s *strays) has(target slots.Index, o held) bool {
	owned, next := s.former.Holds(o.slot, s.compiled.Name(target))
	switch {
	case next: // creations are acknowledged here
		return false
	case owned:
		// The change is reversed. Objects that have not moved are here, and no others of these names: a creation in the new cell looks here
		// first. If both cells have one, that look was before this one was stored.
		_, rival := s.rivals[target][o.key]
		return rival && o.isActive()
	default:
		return s.leftovers && o.mayBeStray()
	}
}

// clearStrays removes strays, before they cannot be told from other objects any more.
func (c *change) clearStrays(ctx context.Context) error {
	c.strays = nil
	status := &c.topology.Status
	if !c.running() || status.FencedEpoch == 0 || status.FencedEpoch != status.ObservedGeneration || status.FencedEpoch == c.topology.Generation {
		return nil // an epoch that was not in force yet has begun to store objects, of failed cells
	}
	former, err := c.formerOwners(ctx, status.FencedEpoch)
	if err != nil || former == nil {
		return err
	}
	found := &strays{compiled: c.compiled, former: former, leftovers: status.LeftoversSince != nil, rivals: map[slots.Index]map[string]struct{}{}}
	if err := c.findRivals(ctx, found); err != nil {
		return err
	}
	if err := c.clear(ctx, found.has); err != nil {
		return err
	}
	if len(c.in(cellplanev1alpha1.CellStateFailed)) == 0 { // takeovers store objects in targets
		c.strays = found
	}
	return nil
}

// formerOwners returns the owners of slots in an epoch; nil if they are not published any more.
func (c *change) formerOwners(ctx context.Context, epoch int64) (*slots.Owners, error) {
	var published corev1.Secret
	if err := c.Fresh.Get(ctx, types.NamespacedName{Namespace: names.SystemNamespace, Name: names.SlotOwnersSecret}, &published); err != nil {
		return nil, fmt.Errorf("reading the owners of slots: %w", err)
	}
	return slots.PublishedOwners(published.Data, epoch)
}

// findRivals finds the active objects in slots that go back to the cell they were leaving.
func (c *change) findRivals(ctx context.Context, found *strays) error {
	back := func(slot slots.Slot) bool {
		route := c.compiled.Route(slot)
		owned, next := found.former.Holds(slot, c.compiled.Name(route.New))
		return route.Moving() && owned && !next
	}
	losing := map[slots.Index]bool{}
	for slot := range slots.Slot(slots.Count) {
		if back(slot) {
			losing[c.compiled.Route(slot).Old] = true
		}
	}
	for source := range losing {
		connection := c.cells[c.compiled.Name(source)]
		if connection == nil {
			continue
		}
		if err := heldIn(ctx, connection.store, func(_ cellstore.KV, o held) error {
			route := c.compiled.Route(o.slot)
			if route.Old != source || !back(o.slot) || !o.class.Federated() || !o.isActive() {
				return nil
			}
			if found.rivals[route.New] == nil {
				found.rivals[route.New] = map[string]struct{}{}
			}
			found.rivals[route.New][o.key] = struct{}{}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// refuseOwnObjects returns an error if a cell that joins, or whose joining is given up before it began, has objects that the federation has not
// stored there: they would replace objects of the same names. A cell that was drained may have strays. One that had failed is empty by now.
func (c *change) refuseOwnObjects(ctx context.Context) error {
	if c.topology.Status.FencedEpoch == 0 {
		return nil // the first epoch
	}
	former, err := c.formerOwners(ctx, c.topology.Status.FencedEpoch)
	if err != nil || former == nil {
		return err
	}
	for _, name := range append(c.in(cellplanev1alpha1.CellStateIn), c.in(cellplanev1alpha1.CellStateOut)...) {
		if former.Number(name) != 0 {
			continue
		}
		connection := c.cells[name]
		drained, err := connection.wasMember(ctx)
		if err != nil {
			return err
		}
		if drained && c.topology.Status.LeftoversSince != nil {
			continue
		}
		own, err := connection.ownObject(ctx)
		if err != nil {
			return err
		}
		if own != "" {
			return fmt.Errorf("cell %s cannot join because it has objects of its own, for example %s; delete them in that cell, or add an empty cell", name, own)
		}
	}
	return nil
}

// wasMember reports whether the cell is or was in a topology.
func (c *connection) wasMember(ctx context.Context) (bool, error) {
	floor, err := c.fence.Floor(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return floor > 0, err
}

// ownObject names a template in a cell; it is empty if there is none.
func (c *connection) ownObject(ctx context.Context) (string, error) {
	var own string
	err := heldIn(ctx, c.store, func(_ cellstore.KV, o held) error {
		if o.class != cellstore.Template || !o.mayBeStray() {
			return nil
		}
		own = o.String()
		return errFound
	})
	if errors.Is(err, errFound) {
		return own, nil
	}
	return "", err
}

// errFound ends a search.
var errFound = errors.New("found")

// isActive reports whether an object is in use.
func (o held) isActive() bool { return o.Labels[names.RebalanceStatusLabel] == "" }

// mayBeStray reports whether an object, in a cell that does not own its slot, was stored after the slot had left: bindings and Works of an engine
// that was behind, and creations. Their clients were told that the outcome is unknown, and reads do not show them.
func (o held) mayBeStray() bool {
	if o.class != cellstore.Template {
		return !o.isStale()
	}
	switch o.Namespace {
	case metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
		return false // control planes store objects of their own there
	}
	return o.isActive() && o.Annotations[names.CopiedFromHubAnnotation] == ""
}
