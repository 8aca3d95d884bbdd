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

// confirmationLasts is how long after a confirmation was asked for it still holds. Before anything moves, the hub manager sees every API
// server refuse the epoch and then waits for fence.Settle; so one that accepted it at a time tells about the time after, too.
const confirmationLasts = fence.Settle * 4 / 5

// confirmations know until when cells are certain to accept an epoch. Reads are not fenced: that something is not in a cell means
// nothing if the map that led there is no longer in force. A write that changes nothing finds out.
type confirmations struct {
	mu    sync.Mutex
	cells map[confirmed]*confirmation
}

// confirmed is what is asked about: a cell in an epoch.
type confirmed struct {
	cell  string
	epoch int64
}

// confirmation is what is known about it, and the question under way.
type confirmation struct {
	until time.Time
	// asking is closed when the question under way is answered; nil if there is none.
	asking chan struct{}
	// answer is that of the last question.
	answer error
	begun  time.Time
}

// errStaleMap means that requests are routed by a later map than the one at hand.
var errStaleMap = apierrors.NewTooManyRequests("the cells are being rearranged; try again in a moment", 1)

// confirm makes sure that what a cell has answered by now was answered while the call's map was in force. It returns errStaleMap if
// that is not certain. Concurrent calls share one question, if it is asked after all of them have their answers.
func (rt *Router) confirm(ctx context.Context, c *call, cell slots.Index) error {
	if rt.confirmations == nil {
		return nil // there is only one map
	}
	arrived := time.Now()
	key := confirmed{c.view.Name(cell), c.view.Epoch()}
	for {
		rt.confirmations.mu.Lock()
		known := rt.confirmations.of(key)
		if arrived.Before(known.until) {
			rt.confirmations.mu.Unlock()
			return nil
		}
		if known.asking == nil {
			known.asking, known.begun = make(chan struct{}), time.Now()
			go rt.askConfirmation(context.WithoutCancel(ctx), c, cell, known)
		}
		asking, begun := known.asking, known.begun
		rt.confirmations.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return ctx.Err()
		}
		if begun.Before(arrived) {
			continue // it was asked too early to tell
		}
		rt.confirmations.mu.Lock()
		answer := known.answer
		rt.confirmations.mu.Unlock()
		return answer
	}
}

// of returns what is known about a cell in an epoch. What was known about earlier epochs is forgotten.
func (s *confirmations) of(key confirmed) *confirmation {
	if s.cells == nil {
		s.cells = map[confirmed]*confirmation{}
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

// confirmTimeout bounds one question.
const confirmTimeout = 10 * time.Second

func (rt *Router) askConfirmation(ctx context.Context, c *call, cell slots.Index, known *confirmation) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	answer := rt.accepts(ctx, c, cell)
	rt.confirmations.mu.Lock()
	defer rt.confirmations.mu.Unlock()
	known.answer = answer
	if answer == nil {
		known.until = known.begun.Add(confirmationLasts)
	}
	close(known.asking)
	known.asking = nil
}

// confirmURL is where the question goes.
var confirmURL, _ = url.Parse(fence.ConfirmPath) // it is a constant that a test reads

// accepts asks a cell whether it accepts writes by the call's map.
func (rt *Router) accepts(ctx context.Context, c *call, cell slots.Index) error {
	upstream := c.view.Upstreams[cell]
	if upstream == nil {
		return forward.Unreachable(c.view.Name(cell), nil)
	}
	_, err := exchangeJSON(ctx, upstream, forward.ToCell(c.view.Epoch()), http.MethodPost, confirmURL.Path, confirmURL.Query(), []byte(fence.ConfirmBody))
	if fence.Refusal(err) == fence.StaleEpoch {
		return errStaleMap
	}
	return err
}
