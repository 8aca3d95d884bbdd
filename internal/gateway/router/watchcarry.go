package router

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

// spread is the time over which watches are continued by another topology, so that they do not all ask the cells at once.
const spread = 300 * time.Millisecond

// leastWatch is the shortest duration of any watch: clients take one that ends within a second without an event for a failure, and
// relist.
const leastWatch = 1200 * time.Millisecond

// ending returns a channel that is closed when another topology is in force. A watch that has not sent all initial events ends then.
func (s *watchStream) ending(ctx context.Context) <-chan struct{} {
	superseded := s.c.view.Superseded()
	if s.shared {
		return superseded // each of the watches that read it takes its time
	}
	end, least := make(chan struct{}), time.Duration(0)
	if s.initial() {
		least = leastWatch
	}
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-superseded:
		}
		delay := max(rand.N(spread), least-time.Since(s.opened))
		select {
		case <-ctx.Done():
		case <-time.After(delay):
			close(end)
		}
	}()
	return end
}

// goesOn reports whether a watch whose streams have ended is continued by the present topology.
func (s *watchStream) goesOn(end <-chan struct{}, merger *watchmerge.Merger) bool {
	select {
	case <-end:
		return merger.Live() && s.r.Context().Err() == nil && (s.shared || time.Now().Before(s.until))
	default:
		return false
	}
}

// carryOn prepares to continue the watch at a position by the present topology, as if the client had resumed it there. It is false if that
// is not possible. The watch ends then, and a client that resumes it gets 410 unless another gateway knows more.
func (s *watchStream) carryOn(at position.Position) bool {
	c, q := *s.c, *s.q // requests for confirmations may still use the former ones
	c.view = s.rt.Topology.View()
	carried, err := s.rt.carry(s.r.Context(), &c, at)
	if err != nil {
		return false
	}
	q.SendInitialEvents, q.at, q.passed = nil, &carried.Position, carried.Passed
	q.after, q.unsampled, q.ResourceVersion = nil, false, ""
	q.cells = s.rt.asked(&c)
	s.c, s.q, s.moves = &c, &q, s.rt.movesOf(&c, &q)
	s.joined, s.tried, s.streamKey, s.marked = nil, false, streamKey{}, nil
	return q.resumable()
}
