package execution

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// tally has a number for each of some objects in members. Its metrics are by member, kind and namespace: a series for each object would be too many.
type tally struct {
	metrics []tallied
	mu      sync.Mutex
	groups  map[group]map[string]float64 // by name
}

// tallied is a metric of a tally.
type tallied struct {
	desc *prometheus.Desc
	// of returns the value for the objects of a group, of which there is at least one.
	of func(objects map[string]float64) float64
}

// group are objects of a member that are counted together.
type group struct{ cluster, kind, namespace string }

var groupLabels = []string{"member_cluster", "kind", "namespace"}

func newTally(metrics ...tallied) *tally {
	return &tally{metrics: metrics, groups: map[group]map[string]float64{}}
}

func (t *tally) set(g group, name string, value float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.groups[g] == nil {
		t.groups[g] = map[string]float64{}
	}
	t.groups[g][name] = value
}

func (t *tally) remove(g group, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.groups[g], name); len(t.groups[g]) == 0 {
		delete(t.groups, g)
	}
}

// Describe implements prometheus.Collector.
func (t *tally) Describe(out chan<- *prometheus.Desc) {
	for _, metric := range t.metrics {
		out <- metric.desc
	}
}

// Collect implements prometheus.Collector.
func (t *tally) Collect(out chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for g, objects := range t.groups {
		for _, metric := range t.metrics {
			out <- prometheus.MustNewConstMetric(metric.desc, prometheus.GaugeValue, metric.of(objects), g.cluster, g.kind, g.namespace)
		}
	}
}

func count(objects map[string]float64) float64 { return float64(len(objects)) }

func sum(objects map[string]float64) (total float64) {
	for _, value := range objects {
		total += value
	}
	return total
}

// earliest returns the lowest value, without those that are 0 for never.
func earliest(objects map[string]float64) (first float64) {
	for _, value := range objects {
		if value != 0 && (first == 0 || value < first) {
			first = value
		}
	}
	return first
}
