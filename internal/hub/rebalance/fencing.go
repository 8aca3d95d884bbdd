package rebalance

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// fence has all cells refuse the former epoch, and prepares those that get objects.
func (c *change) fence(ctx context.Context) error {
	if c.fenced() {
		return nil // by whoever did this before
	}
	status := c.status()
	if c.running() {
		status.Phase = cellplanev1alpha1.TopologyFencing
		if status.Change == nil || status.Change.Epoch != c.topology.Generation {
			status.Change = &cellplanev1alpha1.TopologyChange{Epoch: c.topology.Generation, StartedAt: now()}
		}
		if !isBlocked(status, c.topology.Generation) { // until something has come of another attempt
			setSettled(status, c.topology.Generation, metav1.ConditionFalse, "Fencing", "cells are being told to refuse the former epoch")
		}
	} else if len(c.in(cellplanev1alpha1.CellStateFailed)) > 0 {
		status.Phase = cellplanev1alpha1.TopologyPromoting
		status.Change = nil
	}
	// What a cell that returns still has goes before watches begin to read it.
	if err := c.admit(ctx); err != nil {
		return err
	}
	c.follow()
	if err := c.carry(ctx, status); err != nil {
		return err
	}
	status.Cells = c.holdings()
	status.ObservedGeneration = c.topology.Generation
	if err := c.publish(ctx, status); err != nil {
		return err
	}
	if c.running() {
		if err := c.prepareTargets(ctx); err != nil {
			return err
		}
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	if err := c.everywhere(ctx, func(ctx context.Context, _ string, connection *connection) error {
		return connection.fence.Raise(ctx, c.topology.Generation)
	}); err != nil {
		return err
	}
	for _, failed := range c.in(cellplanev1alpha1.CellStateFailed) {
		if c.Takeover == nil {
			break
		}
		if err := c.Takeover(ctx, c.compiled, failed); err != nil {
			return err
		}
	}
	// Until here, what objects have left behind may have been the last there was of them.
	if c.running() {
		if err := c.clearTargets(ctx); err != nil {
			return err
		}
	}
	status = c.status()
	status.FencedEpoch = c.topology.Generation
	if isBlocked(status, c.topology.Generation) {
		setSettled(status, c.topology.Generation, metav1.ConditionFalse, "Fencing", "all cells refuse the former epoch")
	}
	return c.publish(ctx, status)
}

// fenced tells whether all cells refuse the former epoch.
func (c *change) fenced() bool {
	return c.topology.Status.ObservedGeneration == c.topology.Generation && c.topology.Status.FencedEpoch >= c.topology.Generation
}

// admitting tells whether cells join that may still hold what they had before they failed.
func (c *change) admitting() bool {
	return !c.fenced() && len(c.in(cellplanev1alpha1.CellStateIn)) > 0
}

// follow has the topology followed. What a cell that returns still has must not be taken for new: that comes after it was admitted.
func (c *change) follow() {
	if c.Follow != nil {
		c.Follow(c.compiled)
	}
}

// admit prepares the cells that join.
func (c *change) admit(ctx context.Context) error {
	for _, name := range c.in(cellplanev1alpha1.CellStateIn) {
		if c.Admit == nil {
			return nil
		}
		if err := c.Admit(ctx, c.compiled, name); err != nil {
			return err
		}
	}
	return nil
}
