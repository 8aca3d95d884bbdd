package ingest

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cellplane/cellplane/internal/fleet"
)

// strikes is how many questions in a row a member may leave without an answer before it is given up for the time being.
const strikes = 2

// health is whether a member gives signs of life.
type health struct {
	mu        sync.Mutex
	broken    bool
	recovered chan struct{} // closed while it is not broken
}

func newHealth() *health {
	h := &health{recovered: make(chan struct{})}
	close(h.recovered)
	return h
}

// set takes note of what was found out. It reports whether that is news.
func (h *health) set(broken bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == broken {
		return false
	}
	h.broken = broken
	if broken {
		h.recovered = make(chan struct{})
	} else {
		close(h.recovered)
	}
	return true
}

// await returns when the member is not broken, or the context has ended.
func (h *health) await(ctx context.Context) {
	h.mu.Lock()
	recovered := h.recovered
	h.mu.Unlock()
	select {
	case <-recovered:
	case <-ctx.Done():
	}
}

// probe asks a member for a sign of life. Any answer is one, but for those that a proxy gives in its place.
func probe(ctx context.Context, client *http.Client, base *url.URL, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s := stream{client: client, base: base, path: "/readyz"}
	response, err := s.get(ctx, nil)
	if err == nil {
		return response.Body.Close()
	}
	if !fleet.Unreachable(err) {
		return nil //nolint:nilerr // it has answered
	}
	return err
}
