package manager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cellplane/cellplane/internal/health"
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

// part returns what a replica serves. A standby replica is as ready as the leader.
func (s *status) part() health.Part {
	return health.Part{
		Ready:   func() error { return nil },
		Metrics: metrics.Registry,
		Handlers: map[string]http.HandlerFunc{"GET /replication": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(s.report())
		}},
	}
}
