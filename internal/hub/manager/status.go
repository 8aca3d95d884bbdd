package manager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cellplane/cellplane/internal/health"
	"github.com/cellplane/cellplane/internal/hub/replicate"
)

// status is what a replica reports over HTTP.
type status struct {
	identity string
	problem  func() error // why this replica must not work
	registry *prometheus.Registry

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

func newStatus(identity string, problem func() error) *status {
	s := &status{identity: identity, problem: problem, registry: prometheus.NewRegistry()}
	s.registry.MustRegister(s.collectors()...)
	return s
}

// publish reports the state of a Replicator and the metrics of the leader until withdraw is called.
func (s *status) publish(replicator *replicate.Replicator, cells client.Reader) (withdraw func(), err error) {
	leaders := []prometheus.Collector{replicator, cellConditions{cells}}
	for i, collector := range leaders {
		if err := s.registry.Register(collector); err != nil {
			for _, registered := range leaders[:i] {
				s.registry.Unregister(registered)
			}
			return nil, fmt.Errorf("registering the metrics of the leader: %w", err)
		}
	}
	s.set(replicator)
	return func() {
		s.set(nil)
		for _, collector := range leaders {
			s.registry.Unregister(collector)
		}
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
		Ready:   s.problem,
		Metrics: prometheus.Gatherers{s.registry, metrics.Registry}, // the second has those of the libraries
		Handlers: map[string]http.HandlerFunc{"GET /replication": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(s.report())
		}},
	}
}
