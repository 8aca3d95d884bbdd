package router

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/topology"
)

const (
	// holdBound is how long a request waits for an object to arrive, or for a map. Moving an object takes milliseconds.
	holdBound = 15 * time.Second
	// The wait between two looks at an object that moves.
	firstLook, lastLook = 2 * time.Millisecond, 50 * time.Millisecond
)

// hold is a request that waits. The zero value has not waited yet.
type hold struct {
	since time.Time
	next  time.Duration
}

// begin notes that a request waits, and returns an error if it has waited for too long.
func (h *hold) begin() error {
	if h.since.IsZero() {
		h.since, h.next = time.Now(), firstLook
		heldRequests.Inc()
	}
	if time.Since(h.since) > holdBound {
		refusedRequests.Inc()
		return errHeldTooLong
	}
	return nil
}

// end is to be deferred.
func (h *hold) end() {
	if !h.since.IsZero() {
		heldRequests.Dec()
		heldDuration.Observe(time.Since(h.since).Seconds())
	}
}

var errHeldTooLong = apierrors.NewTooManyRequests("the object is being moved to another cell; try again in a moment", 1)

// look waits before the object is looked at again.
func (h *hold) look(ctx context.Context) error {
	if err := h.begin(); err != nil {
		return err
	}
	select {
	case <-time.After(h.next):
	case <-ctx.Done():
		return ctx.Err()
	}
	h.next = min(2*h.next, lastLook)
	return nil
}

// newer waits until requests are routed by another map than the one that the call was routed by, and routes it by that. A map that is
// not in force yet becomes another one when it is.
func (h *hold) newer(ctx context.Context, tracker *topology.Tracker, c *call) error {
	if err := h.begin(); err != nil {
		return err
	}
	stale, ready := c.view.Epoch(), c.view.Ready()
	ctx, cancel := context.WithDeadline(ctx, h.since.Add(holdBound))
	defer cancel()
	view, found := tracker.Await(ctx, func(v *topology.View) bool { return v.Epoch() > stale || v.Ready() && !ready })
	if !found {
		refusedRequests.Inc()
		return errHeldTooLong
	}
	c.view = view
	return nil
}
