package router

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
)

// confirmationLasts is how long a confirmation holds, counted from when it was requested. Before anything moves, the hub manager sees every
// API server refuse the epoch and then waits for fence.WriteDrain, so a cell that accepts an epoch now does not lose objects that soon.
const confirmationLasts = fence.WriteDrain * 4 / 5

// confirmations records until when an epoch is known to be in force in a cell. Reads are not fenced: that an object is not in a cell means
// nothing if the view that led there is outdated. A write that changes nothing finds out.
type confirmations struct {
	mu    sync.Mutex
	cells map[confirmationKey]*confirmation
}

type confirmationKey struct {
	cell  string
	epoch int64
}

// confirmation is the state of one cell in one epoch.
type confirmation struct {
	until time.Time
	// pending is closed when the request under way is answered; nil if there is none. It began at the time begun.
	pending chan struct{}
	begun   time.Time
	// answer is that of the last request.
	answer error
}

// errOutdatedEpoch means that the epoch of a call is no longer in force.
var errOutdatedEpoch = apierrors.NewTooManyRequests("the topology of the cells is changing; try again in a moment", 1)

// confirm makes sure that the call's epoch was in force when a cell gave the answers received so far. It returns errOutdatedEpoch if
// that is not certain. Concurrent calls share one request, if it begins after all of them have their answers.
func (rt *Router) confirm(ctx context.Context, c *call, cell slots.Index) error {
	if rt.confirmations == nil || c.isHub(cell) {
		return nil // nothing moves
	}
	arrived := time.Now()
	key := confirmationKey{c.view.Name(cell), c.view.Epoch()}
	for {
		rt.confirmations.mu.Lock()
		known := rt.confirmations.of(key)
		if arrived.Before(known.until) {
			rt.confirmations.mu.Unlock()
			return nil
		}
		if known.pending == nil {
			known.pending, known.begun = make(chan struct{}), time.Now()
			go rt.requestConfirmation(context.WithoutCancel(ctx), c, cell, known)
		}
		pending, begun := known.pending, known.begun
		rt.confirmations.mu.Unlock()
		select {
		case <-pending:
		case <-ctx.Done():
			return ctx.Err()
		}
		if begun.Before(arrived) {
			continue // it may be older than the answers
		}
		rt.confirmations.mu.Lock()
		answer := known.answer
		rt.confirmations.mu.Unlock()
		return answer
	}
}

// of returns the confirmation of a cell in an epoch. It forgets those of earlier epochs.
func (s *confirmations) of(key confirmationKey) *confirmation {
	if s.cells == nil {
		s.cells = map[confirmationKey]*confirmation{}
	}
	known := s.cells[key]
	if known == nil {
		for other := range s.cells {
			if other.cell == key.cell && other.epoch < key.epoch {
				delete(s.cells, other)
			}
		}
		known = &confirmation{}
		s.cells[key] = known
	}
	return known
}

// confirmTimeout limits one request.
const confirmTimeout = 10 * time.Second

func (rt *Router) requestConfirmation(ctx context.Context, c *call, cell slots.Index, known *confirmation) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	answer := rt.accepts(ctx, c, cell)
	rt.confirmations.mu.Lock()
	defer rt.confirmations.mu.Unlock()
	known.answer = answer
	if answer == nil {
		known.until = known.begun.Add(confirmationLasts)
	}
	close(known.pending)
	known.pending = nil
}

var confirmURL, _ = url.Parse(fence.ConfirmPath) // a constant, which a test checks

// accepts asks a cell whether it accepts writes of the call's epoch.
func (rt *Router) accepts(ctx context.Context, c *call, cell slots.Index) error {
	upstream := c.view.Upstreams[cell]
	if upstream == nil {
		return forward.Unreachable(c.view.Name(cell), nil)
	}
	_, err := exchangeJSON(ctx, upstream, forward.ToCell(c.view.Epoch()), http.MethodPost, confirmURL.Path, confirmURL.Query(), []byte(fence.ConfirmBody))
	if fence.Refusal(err) == fence.StaleEpoch {
		return errOutdatedEpoch
	}
	return err
}
