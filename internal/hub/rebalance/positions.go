package rebalance

import (
	"context"
	"maps"
	"slices"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// carry sets in the status how watch positions of the former epoch are carried into this one.
func (c *change) carry(ctx context.Context, status *cellplanev1alpha1.CellTopologyStatus) error {
	before, epoch := c.topology.Status, c.topology.Generation
	if before.ObservedGeneration == epoch {
		return nil // done before
	}
	status.Epochs = slices.DeleteFunc(status.Epochs, func(e cellplanev1alpha1.TopologyEpoch) bool { return e.Epoch > epoch })
	if i := len(status.Epochs) - 1; i >= 0 && status.Epochs[i].Epoch == epoch {
		if before.Phase == cellplanev1alpha1.TopologyMoved && before.Change != nil && before.Change.Epoch == epoch-1 && !c.running() && len(c.lost()) == 0 {
			return nil // a change has ended, which has set it before
		}
		status.Epochs = status.Epochs[:i]
	}
	if before.ObservedGeneration == 0 || len(c.lost()) > 0 {
		status.Epochs = nil // former positions are unknown or lost
		return nil
	}
	// Epochs between the two have never been in force.
	entry := cellplanev1alpha1.TopologyEpoch{Epoch: epoch, From: c.unused(status)}
	for _, cell := range c.topology.Spec.Cells {
		known := slices.ContainsFunc(before.Cells, func(known cellplanev1alpha1.CellSlots) bool {
			return known.Name == cell.Name && known.Slots+known.TargetSlots > 0 // a cell that had failed has no slots, and is new
		})
		if known || c.cells[cell.Name] == nil {
			continue
		}
		revision, err := c.cells[cell.Name].store.Revision(ctx)
		if err != nil {
			return err
		}
		if entry.From == nil {
			entry.From = map[string]int64{}
		}
		entry.From[cell.Name] = revision
	}
	status.Epochs = append(status.Epochs, entry)
	if extra := len(status.Epochs) - keptEpochs; extra > 0 {
		status.Epochs = status.Epochs[extra:]
	}
	return nil
}

// publishFrom publishes where watches begin in new cells, once these can be watched: an API server knows the history
// of a kind only from when it first watched it. Until the epoch is in force no gateway watches them, and no client's
// objects are stored there.
func (c *change) publishFrom(ctx context.Context) error {
	status := c.status()
	i := slices.IndexFunc(status.Epochs, func(e cellplanev1alpha1.TopologyEpoch) bool { return e.Epoch == c.topology.Generation })
	if i < 0 || len(status.Epochs[i].From) == 0 {
		return nil
	}
	entry := &status.Epochs[i]
	var err error
	if entry.Before, err = c.revisionsBefore(ctx, entry.From); err != nil {
		return err
	}
	for name := range entry.From {
		connection := c.cells[name]
		if connection == nil {
			continue
		}
		if err := connection.reader.checkWatched(ctx); err != nil {
			return err
		}
		revision, err := connection.store.Revision(ctx)
		if err != nil {
			return err
		}
		entry.From[name] = revision
	}
	return c.publish(ctx, status)
}

// revisionsBefore returns the revisions of the cells that are not new. They have to be read before those of the new cells: a gateway
// concludes that what is stored in a new cell later is newer than all of them.
func (c *change) revisionsBefore(ctx context.Context, joining map[string]int64) (map[string]int64, error) {
	before := map[string]int64{}
	for name, connection := range c.cells {
		if _, joins := joining[name]; joins {
			continue
		}
		revision, err := connection.store.Revision(ctx)
		if err != nil {
			return nil, err
		}
		before[name] = revision
	}
	return before, nil
}

// unused returns where cells began in the former epoch if that was never in force. Then positions are those of the
// epoch before it, and nothing has moved since.
func (c *change) unused(status *cellplanev1alpha1.CellTopologyStatus) map[string]int64 {
	before := c.topology.Status.Phase
	last := len(status.Epochs) - 1
	if last < 0 || status.Epochs[last].Epoch != c.topology.Status.ObservedGeneration || (before != cellplanev1alpha1.TopologyFencing && before != cellplanev1alpha1.TopologyPromoting) {
		return nil
	}
	begun := maps.Clone(status.Epochs[last].From)
	maps.DeleteFunc(begun, func(name string, _ int64) bool { return c.cells[name] == nil })
	return begun
}

// keptEpochs is the maximum number of epochs in the status.
const keptEpochs = 16

// lost returns the cells that have failed since the former epoch.
func (c *change) lost() []string {
	return slices.DeleteFunc(c.in(cellplanev1alpha1.CellStateFailed), func(name string) bool {
		return !slices.ContainsFunc(c.topology.Status.Cells, func(before cellplanev1alpha1.CellSlots) bool {
			return before.Name == name && before.Slots+before.TargetSlots > 0
		})
	})
}
