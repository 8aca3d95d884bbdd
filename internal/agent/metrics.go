package agent

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
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// gatherers returns all metrics of an agent. Those of the cluster's status are in the registry of controller-runtime, with those of the process.
func (a *agent) gatherers() prometheus.Gatherers {
	registry := prometheus.NewRegistry()
	for _, group := range [][]prometheus.Collector{queue.Collectors(), execution.Collectors(), interpreter.Collectors()} {
		registry.MustRegister(group...)
	}
	gauge := func(name, help string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("cellplane_agent_works", "Number of Works of the cluster.", func() float64 { return float64(a.cell.Works.Len()) })
	gauge("cellplane_agent_leading", "Whether this agent leads (1) or stands by (0).", func() float64 {
		if a.leading.Load() {
			return 1
		}
		return 0
	})
	return prometheus.Gatherers{registry, metrics.Registry}
}

// serve serves /healthz, /readyz and /metrics until the context ends.
func (a *agent) serve(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.gatherers(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.ready.Load() {
			http.Error(w, "the Works of the cluster are not known yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "cannot serve metrics")
		}
	}()
	return nil
}
