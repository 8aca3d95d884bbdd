package ingest

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cellplane/cellplane/internal/fleet"
)

// maxMissed is after how many consecutive failed probes a member counts as unreachable.
const maxMissed = 2

// health is whether a member is reachable.
type health struct {
	mu        sync.Mutex
	broken    bool
	recovered chan struct{} // closed while the member is reachable
}

func newHealth() *health {
	h := &health{recovered: make(chan struct{})}
	close(h.recovered)
	return h
}

// set records the state of the member. It reports whether it changed.
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

// await returns when the member is reachable, or the context has ended.
func (h *health) await(ctx context.Context) {
	h.mu.Lock()
	recovered := h.recovered
	h.mu.Unlock()
	select {
	case <-recovered:
	case <-ctx.Done():
	}
}

// probe reports whether a member answers. Any answer counts, except errors that a proxy returns in its place.
func probe(ctx context.Context, client *http.Client, base *url.URL, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s := stream{client: client, base: base, path: "/readyz"}
	response, err := s.get(ctx, nil)
	if err == nil {
		return response.Body.Close()
	}
	if !fleet.Unreachable(err) {
		return nil //nolint:nilerr // the member has answered
	}
	return err
}
