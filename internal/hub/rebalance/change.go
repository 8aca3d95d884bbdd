package rebalance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/slots"
)

// change reconciles one epoch.
type change struct {
	*Controller
	topology *cellplanev1alpha1.CellTopology
	compiled *slots.Map
	// cells are the connections to all cells that have not failed, by name.
	cells map[string]*connection
	// sent is the status that was last sent to the hub. It may be stored even if the answer was lost.
	sent json.RawMessage
	// strays are in the cells that get slots, until the epoch is in force. They are nil if they cannot be told from other objects.
	strays *strays
}

// running reports whether a change is under way.
func (c *change) running() bool {
	return slices.ContainsFunc(c.topology.Spec.Cells, func(cell cellplanev1alpha1.TopologyCell) bool {
		return cell.State == cellplanev1alpha1.CellStateIn || cell.State == cellplanev1alpha1.CellStateOut || cell.TargetWeight != nil
	})
}

// in returns the names of the cells in a state.
func (c *change) in(state cellplanev1alpha1.CellState) []string {
	var found []string
	for _, cell := range c.topology.Spec.Cells {
		if cell.State == state {
			found = append(found, cell.Name)
		}
	}
	return found
}

// connect connects to all cells and raises the term in their stores.
func (c *change) connect(ctx context.Context) error {
	c.cells = map[string]*connection{}
	for _, cell := range c.topology.Spec.Cells {
		if cell.State == cellplanev1alpha1.CellStateFailed {
			continue
		}
		connection, err := c.Cells.to(ctx, cell.Name)
		if err != nil {
			return err
		}
		c.cells[cell.Name] = connection
	}
	return c.everywhere(ctx, func(ctx context.Context, _ string, connection *connection) error {
		return connection.store.RaiseTerm(ctx, c.Term)
	})
}

// cellTimeout bounds a simple request to a cell.
const cellTimeout = 10 * time.Second

// everywhere calls a function for all cells at once. The error names a cell that does not answer.
func (c *change) everywhere(ctx context.Context, do func(context.Context, string, *connection) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, connection := range c.cells {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, cellTimeout)
			defer cancel()
			err := do(limited, name, connection)
			if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("cell %s does not answer; repair it or declare it failed: %w", name, err)
			}
			return err
		})
	}
	return group.Wait()
}

// holdings returns the number of slots of each cell.
func (c *change) holdings() []cellplanev1alpha1.CellSlots {
	var all []cellplanev1alpha1.CellSlots
	for _, h := range c.compiled.Balance() {
		all = append(all, cellplanev1alpha1.CellSlots{Name: h.Cell, Slots: int32(h.Before), TargetSlots: int32(h.After), BackupSlots: int32(h.Backup)})
	}
	return all
}

// describe returns a summary of the change.
func (c *change) describe() string {
	gaining, losing := map[string]int{}, map[string]int{}
	for _, flow := range c.compiled.Flows() {
		gaining[flow.To] += len(flow.Slots)
		losing[flow.From] += len(flow.Slots)
	}
	text := ""
	for _, side := range []struct {
		word  string
		cells map[string]int
	}{{"leave", losing}, {"join", gaining}} {
		for _, name := range slices.Sorted(maps.Keys(side.cells)) {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d slots %s %s", side.cells[name], side.word, name)
		}
	}
	return text
}

// publishStable publishes that nothing moves.
func (c *change) publishStable(ctx context.Context) error {
	status := c.status()
	status.Phase = cellplanev1alpha1.TopologyStable
	if status.Change != nil {
		status.Change.MovedSlots = nil // the other figures stay for later readers
		observeMove(status.Change, 0)
	}
	if status.LeftoversSince == nil {
		setSettled(status, c.topology.Generation, metav1.ConditionTrue, reasonStable, "no change is under way")
	} else {
		setSettled(status, c.topology.Generation, metav1.ConditionFalse, reasonLeftoversKept, "no change is under way; stale copies are removed after the grace period")
	}
	return c.publish(ctx, status)
}
