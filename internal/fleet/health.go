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
	doubted   bool          // whether it is being found out
	recovered chan struct{} // closed when healthy
	listeners []func()
}

func newHealth(probe func(context.Context) error) *health {
	h := &health{probe: probe, recovered: make(chan struct{})}
	close(h.recovered)
	return h
}

// Report takes note of the error of a request. Only those that say that the member cannot be reached count. One that the
// member sent itself may be about a part of it, like an API that it gets from elsewhere: then the member is asked first.
func (m *Member) Report(err error) {
	if !Unreachable(err) {
		return
	}
	h := m.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.reason != nil || h.doubted:
	case answered(err):
		h.doubted = true
		go h.find(m.ctx, err)
	default:
		h.breaks(m.ctx, err)
	}
}

// breaks takes note that the member does not answer. It is called with the lock held.
func (h *health) breaks(ctx context.Context, reason error) {
	h.reason = reason
	h.recovered = make(chan struct{})
	go h.watch(ctx)
}

// find asks a member that answered so as if it could not be reached.
func (h *health) find(ctx context.Context, doubt error) {
	err := h.ask(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubted = false
	if Unreachable(err) && h.reason == nil {
		h.breaks(ctx, doubt)
	}
}

func (h *health) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return h.probe(ctx)
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
		if !Unreachable(h.ask(ctx)) {
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

// answered tells whether an error came from the member, or from whoever stands before it.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

func isSubresource(resource string) bool { return strings.Contains(resource, "/") }
