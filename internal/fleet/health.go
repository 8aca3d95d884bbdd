package fleet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// The rhythm in which a member that does not answer is asked again. There is no back-off: whoever waits for it should
// go on as soon as it is back.
const (
	probeInterval = time.Second
	probeTimeout  = 3 * time.Second
)

// health is whether a member answers. Requests report failures; while it is broken, it is probed until it is not.
type health struct {
	probe func(context.Context) error

	mu        sync.Mutex
	reason    error         // nil: healthy
	recovered chan struct{} // closed when healthy
	listeners []func()
}

func newHealth(probe func(context.Context) error) *health {
	h := &health{probe: probe, recovered: make(chan struct{})}
	close(h.recovered)
	return h
}

// Report takes note of the error of a request. Only those that say that the member cannot be reached count.
func (m *Member) Report(err error) {
	if !Unreachable(err) {
		return
	}
	h := m.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reason != nil {
		return
	}
	h.reason = err
	h.recovered = make(chan struct{})
	go h.watch(m.ctx)
}

// Broken returns why the member does not answer, or nil.
func (m *Member) Broken() error {
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	return m.health.reason
}

// Wait returns when the member answers, or with the error of the context.
func (m *Member) Wait(ctx context.Context) error {
	m.health.mu.Lock()
	recovered := m.health.recovered
	m.health.mu.Unlock()
	select {
	case <-recovered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
}

// OnRecovery registers a function that is called whenever the member answers again.
func (m *Member) OnRecovery(f func()) {
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	m.health.listeners = append(m.health.listeners, f)
}

// watch probes until the member answers.
func (h *health) watch(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
		err := h.probe(probeCtx)
		cancel()
		if err == nil || !Unreachable(err) {
			break
		}
	}
	h.mu.Lock()
	h.reason = nil
	close(h.recovered)
	listeners := h.listeners
	h.mu.Unlock()
	for _, listener := range listeners {
		listener()
	}
}

// Unreachable tells whether an error means that a member did not take the request at all, as opposed to having looked
// at it and refused.
func Unreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		var failed *url.Error
		return errors.As(err, &failed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF) ||
			utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
	}
	switch status.Status().Code {
	case http.StatusUnauthorized, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

func isSubresource(resource string) bool { return strings.Contains(resource, "/") }
