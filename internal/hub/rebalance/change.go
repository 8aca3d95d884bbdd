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

// change is the work of one epoch.
type change struct {
	*Controller
	topology *cellplanev1alpha1.CellTopology
	compiled *slots.Map
	// cells are the connections to all cells that have not failed, by name.
	cells map[string]*connection
	// sent is the status that was last sent to the hub, which may have stored it without our knowing.
	sent json.RawMessage
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

// connect reaches all cells and raises the term in their stores.
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

// reachWithin bounds what one cell may take for a simple request.
const reachWithin = 10 * time.Second

// everywhere does something in all cells at once. A cell that does not answer is named.
func (c *change) everywhere(ctx context.Context, do func(context.Context, string, *connection) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, connection := range c.cells {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, reachWithin)
			defer cancel()
			err := do(limited, name, connection)
			if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("cell %s does not answer; bring it back, or declare it failed: %w", name, err)
			}
			return err
		})
	}
	return group.Wait()
}

// holdings returns how many slots each cell has.
func (c *change) holdings() []cellplanev1alpha1.CellSlots {
	var all []cellplanev1alpha1.CellSlots
	for _, h := range c.compiled.Balance() {
		all = append(all, cellplanev1alpha1.CellSlots{Name: h.Cell, Slots: int32(h.Before), TargetSlots: int32(h.After), BackupSlots: int32(h.Backup)})
	}
	return all
}

// describe puts the change into words.
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

// settle says that nothing moves.
func (c *change) settle(ctx context.Context) error {
	status := c.status()
	status.Phase = cellplanev1alpha1.TopologyStable
	if status.Change != nil {
		status.Change.MovedSlots = nil // how much has moved stays for who asks late
		observeMove(status.Change, 0)
	}
	if status.LeftoversSince == nil {
		setSettled(status, c.topology.Generation, metav1.ConditionTrue, "Stable", "no change is under way")
	} else {
		setSettled(status, c.topology.Generation, metav1.ConditionFalse, "LeftoversKept", "no change is under way; what was left behind is removed after the grace period")
	}
	return c.publish(ctx, status)
}
