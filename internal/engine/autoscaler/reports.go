package autoscaler

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
)

// outage is how long reports count while they cannot be watched. Then all clusters count as silent.
const outage = 30 * time.Second

// report is what a cluster reports about a workload.
type report struct {
	pods autoscale.Pods
	// parts are what it knows of each metric.
	parts map[autoscale.Metric]autoscale.Part
}

// reports are the WorkloadMetrics of workloads with autoscalers, by workload and cluster. It implements fleet.Sink.
type reports struct {
	changed func(target)
	now     func() time.Time

	mu      sync.Mutex
	of      map[target]map[string]*report
	sources map[cell.Key]source // by name
	listed  fleet.Listing[cell.Key]
	// lost is since when they cannot be watched, zero while they can.
	lost time.Time
}

// source is the workload and the cluster of a report.
type source struct {
	target
	cluster string
}

func newReports(changed func(target), now func() time.Time) *reports {
	return &reports{changed: changed, now: now, of: map[target]map[string]*report{}, sources: map[cell.Key]source{}, lost: now().Add(-outage)}
}

// about returns the reports about a workload by cluster, none if they are out of date.
func (r *reports) about(t target) map[string]*report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lost.IsZero() && r.now().Sub(r.lost) >= outage {
		return nil
	}
	return maps.Clone(r.of[t])
}

// watched is called when a watch begins, failed when one fails.
func (r *reports) watched() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = time.Time{}
}

func (r *reports) failed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost.IsZero() {
		r.lost = r.now()
	}
}

// Set implements fleet.Sink.
func (r *reports) Set(obj runtime.Object) {
	metrics, ok := obj.(*metricsv1alpha1.WorkloadMetrics)
	if !ok {
		return
	}
	gv, err := schema.ParseGroupVersion(metrics.Workload.APIVersion)
	if err != nil {
		return
	}
	now := &report{pods: autoscale.Pods{Total: metrics.Pods.Total, Ready: metrics.Pods.Ready}, parts: make(map[autoscale.Metric]autoscale.Part, len(metrics.Metrics))}
	for _, part := range metrics.Metrics {
		metric, known := autoscale.Decode(part)
		now.parts[metric] = known
	}
	name := keyOf(metrics)
	from := source{target{gv.WithKind(metrics.Workload.Kind).GroupKind(), cell.Key{Namespace: metrics.Namespace, Name: metrics.Workload.Name}}, metrics.Cluster}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed.Saw(name)
	if r.of[from.target] == nil {
		r.of[from.target] = map[string]*report{}
	}
	r.of[from.target][from.cluster], r.sources[name] = now, from
	r.changed(from.target)
}

// Unset implements fleet.Sink.
func (r *reports) Unset(obj runtime.Object) {
	if metrics, ok := obj.(*metricsv1alpha1.WorkloadMetrics); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.remove(keyOf(metrics))
	}
}

// Relist implements fleet.Sink.
func (r *reports) Relist() func(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed.Begin()
	return func(string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, name := range r.listed.End(maps.Keys(r.sources)) {
			r.remove(name)
		}
	}
}

// remove removes a report. It is called with the lock held.
func (r *reports) remove(name cell.Key) {
	from, known := r.sources[name]
	if !known {
		return
	}
	delete(r.sources, name)
	delete(r.of[from.target], from.cluster)
	if len(r.of[from.target]) == 0 {
		delete(r.of, from.target)
	}
	r.changed(from.target)
}
