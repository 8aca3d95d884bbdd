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

// board is what a replica shows of itself.
type board struct {
	identity string

	mu         sync.Mutex
	replicator *replicate.Replicator // nil while another replica works
}

// Report is the document at /replication.
type Report struct {
	Identity string `json:"identity"`
	// Working tells whether this replica is the one that works. The others know nothing of the cells.
	Working bool                        `json:"working"`
	Cells   map[string]replicate.Status `json:"cells,omitempty"`
}

// show puts a Replicator on the board, until withdraw is called.
func (b *board) show(replicator *replicate.Replicator) (withdraw func(), err error) {
	if err := metrics.Registry.Register(replicator); err != nil {
		return nil, fmt.Errorf("registering the metrics of replication: %w", err)
	}
	b.set(replicator)
	return func() {
		b.set(nil)
		metrics.Registry.Unregister(replicator)
	}, nil
}

func (b *board) set(replicator *replicate.Replicator) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicator = replicator
}

func (b *board) report() Report {
	b.mu.Lock()
	replicator := b.replicator
	b.mu.Unlock()
	report := Report{Identity: b.identity, Working: replicator != nil}
	if replicator != nil {
		report.Cells = replicator.Status()
	}
	return report
}

// server serves the board.
type server struct{ http *http.Server }

// serve listens at an address; an empty one means not at all.
func serve(ctx context.Context, address string, board *board) (*server, error) {
	if address == "" {
		return &server{}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w; choose another address with --bind-address", address, err)
	}
	mux := http.NewServeMux()
	// A replica that waits for its turn is as healthy and ready as one that works.
	for _, path := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /replication", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(board.report())
	})
	s := &server{http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Serving health and metrics ended")
		}
	}()
	return s, nil
}

func (s *server) stop() {
	if s.http != nil {
		_ = s.http.Close()
	}
}
