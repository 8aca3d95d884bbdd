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

// How often an unreachable member is probed. There is no back-off: work should continue as soon as it is back.
const (
	probeInterval = time.Second
	probeTimeout  = 3 * time.Second
)

// health tracks whether a member is reachable. Requests report failures; an unreachable member is probed until it answers.
type health struct {
	probe func(context.Context) error

	mu        sync.Mutex
	reason    error         // nil: healthy
	checking  bool          // whether a doubtful failure is being checked
	recovered chan struct{} // closed when healthy
	listeners []func()
}

func newHealth(probe func(context.Context) error) *health {
	h := &health{probe: probe, recovered: make(chan struct{})}
	close(h.recovered)
	return h
}

// Report notes the error of a request. Only errors that mean that the member is unreachable count. One that the member sent
// itself may be about a part of it, like an aggregated API: then the member is probed first.
func (m *Member) Report(err error) {
	if !Unreachable(err) {
		return
	}
	h := m.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.reason != nil || h.checking:
	case answered(err):
		h.checking = true
		go h.check(m.ctx, err)
	default:
		h.fail(m.ctx, err)
	}
}

// fail marks the member as unreachable. The caller holds the lock.
func (h *health) fail(ctx context.Context, reason error) {
	h.reason = reason
	h.recovered = make(chan struct{})
	go h.watch(ctx)
}

// check probes a member that answered with an error that may mean that it is unreachable.
func (h *health) check(ctx context.Context, doubt error) {
	err := h.probeOnce(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checking = false
	if Unreachable(err) && h.reason == nil {
		h.fail(ctx, doubt)
	}
}

func (h *health) probeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return h.probe(ctx)
}

// Broken returns why the member is unreachable, or nil.
func (m *Member) Broken() error {
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	return m.health.reason
}

// Wait returns when the member is reachable, or with the error of the context.
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

// OnRecovery registers a function that is called whenever the member becomes reachable again.
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
		if !Unreachable(h.probeOnce(ctx)) {
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

// Unreachable reports whether an error means that a member did not process the request, as opposed to refusing it.
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

// answered reports whether an error came from the member or a proxy in front of it.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

func isSubresource(resource string) bool { return strings.Contains(resource, "/") }
