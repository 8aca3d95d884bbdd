package routing

import (
	"slices"
	"time"

	"github.com/cellplane/cellplane/internal/slots"
)

// Order is the order in which a Collection reads the cells of a move.
type Order int

// The orders. Either way an object that is missing from the first answer is in the second.
const (
	// NewFirst is for readers that see moved objects.
	NewFirst Order = iota
	// OldFirst is for readers that leave them out.
	OldFirst
)

// Collection routes a list. Call Start with every new view, then Step with the outcome of each Action.
type Collection struct {
	bounds Bounds
	order  Order
	hold   hold

	past   bool
	stages [][]slots.Index
	listed []slots.Index
	phase  phase
}

// NewCollection returns a Collection that has not started.
func NewCollection(order Order, bounds Bounds) Collection {
	return Collection{order: order, bounds: bounds}
}

// Start returns the first action with a view. The list reads the given cells. A list of a past state needs no confirmation.
func (c *Collection) Start(view *View, cells []slots.Index, past bool) Action {
	c.past, c.listed, c.stages = past, nil, view.stages(cells)
	if c.order == OldFirst {
		slices.Reverse(c.stages)
	}
	return c.nextStage()
}

// Step takes the outcome of the last action and returns the next. After AwaitView call Start instead, unless no view arrived.
func (c *Collection) Step(now time.Time, in Input) Action {
	switch {
	case c.phase == awaitingView:
		return Action{Kind: Refuse, Reason: HeldTooLong}
	case c.phase != confirmAbsent:
		c.listed = append(c.listed, in.Listed...)
		return c.nextStage()
	case in.Stale:
		c.phase = awaitingView
		return c.hold.awaitView(now, c.bounds.Hold)
	default:
		return Action{Kind: Serve}
	}
}

// nextStage lists the next cells, or confirms what has been listed.
func (c *Collection) nextStage() Action {
	c.phase = searchAll
	for len(c.stages) > 0 {
		stage := c.stages[0]
		c.stages = c.stages[1:]
		if len(stage) > 0 {
			return Action{Kind: List, Cells: stage}
		}
	}
	switch {
	case len(c.listed) == 0:
		return Action{Kind: Fail}
	case c.past:
		return Action{Kind: Serve}
	}
	c.phase = confirmAbsent
	return Action{Kind: ConfirmAll, Cells: c.listed}
}
