package index

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Metrics are the metrics of all indexers.
type Metrics struct {
	operations, bytes, failures *prometheus.CounterVec
	lag                         *prometheus.GaugeVec
}

// NewMetrics returns the metrics of indexers that have done nothing.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cellplane_cluster_gateway_index_" + name, Help: help}, append([]string{"kind", "backend"}, labels...))
	}
	return &Metrics{
		operations: counter("documents_total", "Documents that were written to or deleted from indexes, by result.", "operation", "result"),
		bytes:      counter("bytes_total", "Size of the documents that were written."),
		failures:   counter("failures_total", "Requests to the search engine that failed, in whole or in part."),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cellplane_cluster_gateway_index_lag_seconds", Help: "How long the oldest change has waited to be indexed.",
		}, []string{"kind", "backend"}),
	}
}

// Collectors returns all of them.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.operations, m.bytes, m.failures, m.lag}
}

// kindMetrics are those of an indexer.
type kindMetrics struct {
	of       *Metrics
	labels   []string
	bytes    prometheus.Counter
	failures prometheus.Counter
	lag      prometheus.Gauge
}

func (m *Metrics) ofKind(kind schema.GroupVersionKind, target Target) *kindMetrics {
	labels := []string{kind.GroupKind().String(), target.Addresses}
	return &kindMetrics{of: m, labels: labels, bytes: m.bytes.WithLabelValues(labels...), failures: m.failures.WithLabelValues(labels...), lag: m.lag.WithLabelValues(labels...)}
}

var outcomes = map[Outcome]string{Applied: "applied", Outdated: "outdated", Failed: "failed", Missing: "failed", Refused: "refused"}

// operation counts an operation.
func (m *kindMetrics) operation(o *Operation, outcome Outcome) {
	name := "index"
	if o.Document == nil {
		name = "delete"
	}
	m.of.operations.WithLabelValues(append(m.labels[:2:2], name, outcomes[outcome])...).Inc()
	if outcome == Applied {
		m.bytes.Add(float64(len(o.Document)))
	}
}

// forget removes what would no longer change.
func (m *kindMetrics) forget() { m.of.lag.DeleteLabelValues(m.labels...) }
