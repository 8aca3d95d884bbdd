package rebalance

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// fence has all cells refuse the former epoch, and prepares those that get objects.
func (c *change) fence(ctx context.Context) error {
	if c.fenced() { // by an earlier attempt
		return c.putInForce(ctx)
	}
	status := c.beginFencing()
	// 1. Record which cells have failed, and empty those that return, before backups and watches read them.
	if err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.admit(ctx); err != nil {
		return err
	}
	c.follow()
	// 2. Publish the epoch, and how watch positions are carried into it. Strays of earlier changes cannot be told from other objects afterwards.
	if err := c.clearStrays(ctx); err != nil {
		return err
	}
	if err := c.publishEpoch(ctx, status); err != nil {
		return err
	}
	// 3. Make sure that the targets can take what they get, and can be watched.
	if c.running() {
		if err := c.refuseOwnObjects(ctx); err != nil {
			return err
		}
		if err := c.prepareTargets(ctx); err != nil {
			return err
		}
		if err := c.publishFrom(ctx); err != nil {
			return err
		}
	}
	// 4. Have all cells refuse the former epoch.
	if err := c.everywhere(ctx, func(ctx context.Context, _ string, connection *connection) error {
		return connection.fence.Raise(ctx, c.topology.Generation)
	}); err != nil {
		return err
	}
	if c.HubFence != nil {
		if err := c.HubFence.Raise(ctx, c.topology.Generation); err != nil {
			return err
		}
	}
	// 5. Take over failed cells. Stale copies must stay until then: they may be the last copies of objects.
	if err := c.takeOver(ctx); err != nil {
		return err
	}
	// 6. Remove stale copies from the targets.
	if c.running() {
		if err := c.clearTargets(ctx); err != nil {
			return err
		}
	}
	if err := c.putInForce(ctx); err != nil {
		return err
	}
	return c.publishFenced(ctx)
}

// putInForce records the cells whose votes gateways count from now on: no gateway can renew its writer lease at an earlier epoch.
func (c *change) putInForce(ctx context.Context) error {
	if c.HubFence == nil {
		return nil
	}
	var cells []string
	for _, cell := range c.topology.Spec.Cells {
		if cell.State != cellplanev1alpha1.CellStateFailed {
			cells = append(cells, cell.Name)
		}
	}
	return c.HubFence.PutInForce(ctx, cells)
}

// dismiss raises the floors of cells that are about to leave the topology: gateways by this one must not count their votes any more.
func (c *change) dismiss(ctx context.Context) error {
	for _, name := range c.in(cellplanev1alpha1.CellStateOut) {
		if err := c.cells[name].fence.RaiseFloor(ctx, c.topology.Generation+1); err != nil {
			return err
		}
	}
	return nil
}

// fenced reports whether all cells refuse the former epoch.
func (c *change) fenced() bool {
	return c.topology.Status.ObservedGeneration == c.topology.Generation && c.topology.Status.FencedEpoch >= c.topology.Generation
}

// beginFencing returns the status with which fencing begins.
func (c *change) beginFencing() *cellplanev1alpha1.CellTopologyStatus {
	status := c.status()
	if c.running() {
		status.Phase = cellplanev1alpha1.TopologyFencing
		if status.Change == nil || status.Change.Epoch != c.topology.Generation {
			status.Change = &cellplanev1alpha1.TopologyChange{Epoch: c.topology.Generation, StartedAt: now()}
		}
		if !isBlocked(status, c.topology.Generation) { // a former failure stays visible until an attempt succeeds
			setSettled(status, c.topology.Generation, metav1.ConditionFalse, reasonFencing, "the fence is being raised: cells do not refuse the former epoch yet")
		}
	} else if len(c.in(cellplanev1alpha1.CellStateFailed)) > 0 {
		status.Phase = cellplanev1alpha1.TopologyPromoting
		status.Change = nil
	}
	return status
}

// publishEpoch publishes that this epoch is being put in force.
func (c *change) publishEpoch(ctx context.Context, status *cellplanev1alpha1.CellTopologyStatus) error {
	if err := c.carry(ctx, status); err != nil {
		return err
	}
	status.Cells = c.holdings()
	status.ObservedGeneration = c.topology.Generation
	return c.publish(ctx, status)
}

// publishFenced publishes that all cells refuse the former epoch.
func (c *change) publishFenced(ctx context.Context) error {
	status := c.status()
	status.FencedEpoch = c.topology.Generation
	if isBlocked(status, c.topology.Generation) {
		setSettled(status, c.topology.Generation, metav1.ConditionFalse, reasonFencing, "all cells refuse the former epoch")
	}
	return c.publish(ctx, status)
}

// admitting reports whether cells join that may still hold objects from before they failed.
func (c *change) admitting() bool {
	return !c.fenced() && len(c.in(cellplanev1alpha1.CellStateIn)) > 0
}

// follow has backups follow the topology. If cells join, they are admitted first: a returning cell's old objects must
// not be copied.
func (c *change) follow() {
	if c.OnTopology != nil {
		c.OnTopology(c.compiled)
	}
}

// begin records that cells have failed. From when the epoch is published they can return (see the rules of CellTopology), and must be known then
// to have failed.
func (c *change) begin(ctx context.Context) error {
	if c.Begin == nil {
		return nil
	}
	for _, name := range c.in(cellplanev1alpha1.CellStateFailed) {
		if err := c.Begin(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// admit prepares the joining cells.
func (c *change) admit(ctx context.Context) error {
	if c.Admit == nil {
		return nil
	}
	for _, name := range c.in(cellplanev1alpha1.CellStateIn) {
		if err := c.Admit(ctx, c.compiled, name); err != nil {
			return err
		}
	}
	return nil
}

// takeOver takes over the failed cells.
func (c *change) takeOver(ctx context.Context) error {
	if c.Takeover == nil {
		return nil
	}
	for _, failed := range c.in(cellplanev1alpha1.CellStateFailed) {
		if err := c.Takeover(ctx, c.compiled, failed); err != nil {
			return err
		}
	}
	return nil
}
