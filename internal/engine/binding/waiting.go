package binding

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

var (
	waitingDesc     = prometheus.NewDesc("cellplane_engine_rollouts_waiting", "Rollouts in which at least one cluster waits for others, for a stage or for an approval.", []string{"cell"}, nil)
	longestWaitDesc = prometheus.NewDesc("cellplane_engine_rollout_longest_wait_seconds",
		"Longest time for which a rollout in which clusters wait has made no step that this engine has seen; 0 if none waits.", []string{"cell"}, nil)
)

// waitingRollouts are the rollouts in which clusters wait, with the time since when nothing about them has changed.
type waitingRollouts struct {
	mu    sync.Mutex
	cells map[string]map[cell.Key]time.Time
}

// rolloutWaits are those of all engines of the process. Only tests have several.
var rolloutWaits = &waitingRollouts{cells: map[string]map[cell.Key]time.Time{}}

// follow keeps up with the bindings of a cell.
func (w *waitingRollouts) follow(c *cell.Cell) {
	w.mu.Lock()
	w.cells[c.Name] = map[cell.Key]time.Time{}
	w.mu.Unlock()
	c.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		w.changed(c.Name, key, old, now, time.Now())
	})
}

func (w *waitingRollouts) changed(in string, key cell.Key, old, now *workv1alpha2.ResourceBinding, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now == nil || now.Annotations[names.RolloutWaitsAnnotation] == "" {
		delete(w.cells[in], key)
		return
	}
	for _, note := range []string{names.RolloutAnnotation, names.RolloutWaitsAnnotation, names.RolloutStagesAnnotation} {
		if old == nil || old.Annotations[note] != now.Annotations[note] {
			w.cells[in][key] = at
			return
		}
	}
}

// Describe implements prometheus.Collector.
func (w *waitingRollouts) Describe(out chan<- *prometheus.Desc) {
	out <- waitingDesc
	out <- longestWaitDesc
}

// Collect implements prometheus.Collector.
func (w *waitingRollouts) Collect(out chan<- prometheus.Metric) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, since := range w.cells {
		longest := time.Duration(0)
		for _, began := range since {
			longest = max(longest, now.Sub(began))
		}
		out <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(len(since)), name)
		out <- prometheus.MustNewConstMetric(longestWaitDesc, prometheus.GaugeValue, longest.Seconds(), name)
	}
}
