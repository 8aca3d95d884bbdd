package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cellplane/cellplane/internal/hub/replicate"
)

// status is what a replica reports over HTTP.
type status struct {
	identity string

	mu         sync.Mutex
	replicator *replicate.Replicator // nil unless this replica leads
}

// Report is the document at /replication.
type Report struct {
	Identity string `json:"identity"`
	// Working is whether this replica leads. Only the leader reports cells.
	Working bool                        `json:"working"`
	Cells   map[string]replicate.Status `json:"cells,omitempty"`
}

// publish reports the state and the metrics of a Replicator until withdraw is called.
func (s *status) publish(replicator *replicate.Replicator) (withdraw func(), err error) {
	if err := metrics.Registry.Register(replicator); err != nil {
		return nil, fmt.Errorf("registering the replication metrics: %w", err)
	}
	s.set(replicator)
	return func() {
		s.set(nil)
		metrics.Registry.Unregister(replicator)
	}, nil
}

func (s *status) set(replicator *replicate.Replicator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicator = replicator
}

func (s *status) report() Report {
	s.mu.Lock()
	replicator := s.replicator
	s.mu.Unlock()
	report := Report{Identity: s.identity, Working: replicator != nil}
	if replicator != nil {
		report.Cells = replicator.Status()
	}
	return report
}

// server serves health, metrics and the status.
type server struct{ http *http.Server }

// serve listens at an address, unless that is empty.
func serve(ctx context.Context, address string, status *status) (*server, error) {
	if address == "" {
		return &server{}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w; choose another address with --bind-address", address, err)
	}
	mux := http.NewServeMux()
	// A standby replica is as healthy and ready as the leader.
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /replication", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status.report())
	})
	s := &server{http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "serving health and metrics failed")
		}
	}()
	return s, nil
}

func (s *server) stop() {
	if s.http != nil {
		_ = s.http.Close()
	}
}
