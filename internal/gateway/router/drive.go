package router

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// bounds are the time limits of a request. Moving an object takes milliseconds, but it may take long until it is its turn.
var bounds = routing.Bounds{Hold: 15 * time.Second, Outcome: 30 * time.Second, WriteDrain: fence.WriteDrain}

var (
	errHeldTooLong = apierrors.NewTooManyRequests("the object is being moved to another cell; try again in a moment", 1)
	// errUnknownOutcome answers a create that was stored, but perhaps after the cell had lost its slot, if it was not found out what became of it.
	errUnknownOutcome = apierrors.NewTimeoutError("the cells changed while the object was being created, and it may or may not exist; check before you try again", 0)
)

// exchange sends the client's own request. Functions that an operation does not need may be nil.
type exchange struct {
	// fetch reads the object from a cell and returns its state there.
	fetch func(cell slots.Index) (routing.State, error)
	// send sends a write to a cell.
	send func(cell slots.Index, write routing.Write) (routing.Result, error)
	// uid returns the UID of the object in the last answer to send, "" if there is none.
	uid func() string
	// discard drops the last answer, which will not be served.
	discard func()
}

// request describes the call to package routing. The label is that of the object in the body, if there is one.
func (rt *Router) request(c *call, op routing.Op, name, label string) routing.Request {
	return routing.Request{Op: op, Placement: c.placement, Slot: rt.slotOf(c, name, label), OnHub: rt.bindsHubTemplate(c, name)}
}

// drive routes a request for the object of a name until there is a verdict. The last answer of the exchange is the one to serve, unless
// there is an error, which can be written as it is.
func (rt *Router) drive(ctx context.Context, c *call, request routing.Request, name string, x exchange) (routing.Action, error) {
	d := driver{rt: rt, c: c, name: name, exchange: x}
	defer d.held.end()
	machine := routing.New(request, &c.view.View, bounds)
	action := machine.Start(time.Now())
	for !action.Final() {
		in, err := d.perform(ctx, action)
		if err != nil {
			d.drop()
			if action.Keep {
				err = errUnknownOutcome // the error might tell the client to try again
			}
			return action, err
		}
		action = machine.Step(time.Now(), in)
	}
	err := d.refusal(action)
	if err != nil {
		d.drop()
	}
	return action, err
}

// driver performs the actions of a routing machine.
type driver struct {
	rt       *Router
	c        *call
	name     string
	exchange exchange
	held     heldRequest
	// failure is the error of the cells that a search could not reach.
	failure error
}

func (d *driver) perform(ctx context.Context, action routing.Action) (in routing.Input, err error) {
	if action.Kind != routing.Confirm && !action.Keep {
		d.drop()
	}
	switch action.Kind {
	case routing.Look:
		var seen sighting
		seen, err = d.rt.look(ctx, d.c, action.Cell, d.name)
		in.State, in.Version = seen.state, seen.version
	case routing.LookAll:
		in.Found, d.failure = d.rt.lookAll(ctx, d.c, action.Cells, d.name)
		in.Unreachable = d.failure != nil
	case routing.Fetch:
		in.State, err = d.exchange.fetch(action.Cell)
	case routing.Send:
		in.Result, err = d.exchange.send(action.Cell, action.Write)
	case routing.Confirm:
		in.Stale, err = isStale(d.rt.confirm(ctx, d.c, action.Cell))
		if in.Unreachable = err != nil && action.Keep; in.Unreachable {
			err = ctx.Err()
		}
		if in.Stale || in.Unreachable {
			in.UID = d.createdUID()
		}
	case routing.Wait:
		err = d.held.wait(ctx, action.For)
		if view := d.rt.Topology.View(); view.Replaces(&d.c.view.View) {
			d.c.view = view
		}
		in.View = &d.c.view.View
	case routing.AwaitView:
		if d.held.awaitView(ctx, d.rt.Topology, d.c, action.Deadline) {
			in.View = &d.c.view.View
		}
	}
	return in, err
}

// createdUID returns the UID of the object in the last answer.
func (d *driver) createdUID() string {
	if d.exchange.uid == nil {
		return ""
	}
	return d.exchange.uid()
}

// drop discards the last answer.
func (d *driver) drop() {
	if d.exchange.discard != nil {
		d.exchange.discard()
	}
}

// isStale separates the answer that an epoch is outdated from other errors.
func isStale(err error) (bool, error) {
	if errors.Is(err, errOutdatedEpoch) {
		return true, nil
	}
	return false, err
}

// refusal returns the error that a verdict stands for, nil if there is an answer.
func (d *driver) refusal(action routing.Action) error {
	switch action.Kind {
	case routing.Fail:
		return d.failure
	case routing.Refuse:
		return refusalFor(d.c, action.Reason, d.name)
	default:
		return nil
	}
}

func refusalFor(c *call, reason routing.Reason, name string) error {
	switch reason {
	case routing.AlreadyExists:
		return apierrors.NewAlreadyExists(c.groupResource(), name)
	case routing.Vanished:
		return apierrors.NewNotFound(c.groupResource(), name)
	case routing.UnknownOutcome:
		return errUnknownOutcome
	default:
		refusedRequests.Inc()
		return errHeldTooLong
	}
}

// heldRequest measures how long a request waits. The zero value has not waited yet.
type heldRequest struct{ since time.Time }

func (h *heldRequest) begin() {
	if h.since.IsZero() {
		h.since = time.Now()
		heldRequests.Inc()
	}
}

// end is to be deferred.
func (h *heldRequest) end() {
	if !h.since.IsZero() {
		heldRequests.Dec()
		heldDuration.Observe(time.Since(h.since).Seconds())
	}
}

func (h *heldRequest) wait(ctx context.Context, d time.Duration) error {
	h.begin()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitView waits for a view that replaces the call's, and reports whether the call has it.
func (h *heldRequest) awaitView(ctx context.Context, tracker *topology.Tracker, c *call, deadline time.Time) bool {
	h.begin()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	view, found := tracker.Await(ctx, func(v *topology.View) bool { return v.Replaces(&c.view.View) })
	if found {
		c.view = view
	}
	return found
}

// lookAll looks in several cells at once. It returns what the others have found if one fails.
func (rt *Router) lookAll(ctx context.Context, c *call, cells []slots.Index, name string) ([]routing.Sighting, error) {
	seen := make([]routing.Sighting, len(cells))
	var group errgroup.Group
	for i, cell := range cells {
		group.Go(func() error {
			found, err := rt.look(ctx, c, cell, name)
			seen[i] = routing.Sighting{Cell: cell, State: found.state, Version: found.version, UID: found.uid, CopiedAt: found.copiedAt}
			return err
		})
	}
	return seen, group.Wait()
}
