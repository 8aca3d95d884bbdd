// Package health serves the probes and metrics of a part: /healthz says that it runs, /readyz that it is ready, /metrics what it does. There is no TLS
// and no authentication. Metrics belong on a loopback address; a kubelet, which does not reach that, gets one with nothing but the probes.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// Part is what serves its health. All fields but Ready may be empty.
type Part struct {
	// Ready returns why the part is not ready.
	Ready func() error
	// Metrics and Handlers, by pattern, are served beside the probes.
	Metrics  prometheus.Gatherer
	Handlers map[string]http.HandlerFunc
}

// readHeaderTimeout ends requests that never come.
const readHeaderTimeout = 10 * time.Second

// Serve serves everything at one address, and the probes alone at another, until stop is called, which it must be. An empty address means nowhere.
func (p Part) Serve(ctx context.Context, address, probes string) (stop func(), err error) {
	all, err := serve(ctx, address, p.mux)
	if err != nil {
		return nil, fmt.Errorf("serving metrics: %w; choose another address for them", err)
	}
	alone, err := serve(ctx, probes, Part{Ready: p.Ready}.mux)
	if err != nil {
		all()
		return nil, fmt.Errorf("serving probes: %w; choose another --health-address", err)
	}
	return func() { all(); alone() }, nil
}

func serve(ctx context.Context, address string, handler func() http.Handler) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler(), ReadHeaderTimeout: readHeaderTimeout}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "cannot serve metrics and probes", "address", address)
		}
	}()
	return func() {
		_ = server.Close()
		_ = listener.Close() // the server may not know it yet
	}, nil
}

func (p Part) mux() http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) }
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { ok(w) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := p.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		ok(w)
	})
	if p.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{}))
	}
	for pattern, handler := range p.Handlers {
		mux.HandleFunc(pattern, handler)
	}
	return mux
}
