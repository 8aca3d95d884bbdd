package pushed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustercache"
)

// Kind describes how WorkloadMetrics are cached.
func Kind() clustercache.Kind {
	return clustercache.Kind{GroupVersionKind: metricsv1alpha1.GroupVersion.WithKind("WorkloadMetrics"), Resource: "workloadmetrics", Namespaced: true}
}

// An agent may report of anything that it says to run. What it can make this process hold has bounds, far above what a cluster has: Kubernetes allows
// for 150 000 pods.
const (
	mostWorkloads = 150_000
	// maxItem is the size of the largest item, encoded. Most have a few hundred bytes.
	maxItem = 8 << 10
)

// errTooMuch is that a report exceeds a bound.
var errTooMuch = errors.New("more than a cluster may report")

// Metrics are the WorkloadMetrics of all clusters.
type Metrics struct {
	// Store has them.
	Store *clustercache.Store
	// Keep is how long those of a silent agent are kept.
	Keep time.Duration
	// Shows reports whether a cluster is shown by this share.
	Shows func(cluster string) bool
	// Wanted returns the metrics that autoscalers need; nil if that is not known yet. What it returns has another address when it has changed.
	Wanted func() *metricsv1alpha1.WantedMetrics
	// Most is how many workloads a cluster may report about; 0 means the default.
	Most int

	mu        sync.Mutex
	reporters map[string]*reporter
}

// take takes a report that has been checked. It returns true if the report continues what is not known.
func (m *Metrics) take(cluster string, spec *metricsv1alpha1.MetricsReportSpec, now time.Time) (resend bool, err error) {
	r := m.reporterOf(cluster)
	defer r.mu.Unlock()
	if resend, err = r.take(cluster, spec, now); err != nil {
		return false, fmt.Errorf("taking the report of cluster %s: %w", cluster, err)
	}
	return resend, nil
}

// reporterOf returns the reporter of a cluster, locked.
func (m *Metrics) reporterOf(cluster string) *reporter {
	for {
		m.mu.Lock()
		r := m.reporters[cluster]
		if r == nil {
			if m.reporters == nil {
				m.reporters = map[string]*reporter{}
			}
			r = &reporter{feed: m.Store.Feed(cluster), most: cmp.Or(m.Most, mostWorkloads)}
			m.reporters[cluster] = r
		}
		m.mu.Unlock()
		r.mu.Lock()
		if !r.gone {
			return r
		}
		r.mu.Unlock()
	}
}

// Run removes the metrics of silent agents until the context ends.
func (m *Metrics) Run(ctx context.Context) {
	ticker := time.NewTicker(max(m.Keep/8, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			m.expire(now)
		}
	}
}

// expire removes the metrics of clusters that have not reported lately, or are no longer shown.
func (m *Metrics) expire(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for cluster, r := range m.reporters {
		if r.expire(now.Add(-m.Keep), m.Shows(cluster)) {
			delete(m.reporters, cluster)
		}
	}
}

// reporter is the agent of a cluster.
type reporter struct {
	mu   sync.Mutex
	feed *clustercache.Feed
	most int
	// session and sequence are those of the last report.
	session  string
	sequence int64
	// begun is set while everything is being reported.
	begun bool
	// renewed is when all that is held was last known to be current.
	renewed time.Time
	gone    bool
	chosen  chosen
}

// take applies a report. It returns true if the report continues what is not known.
func (r *reporter) take(cluster string, spec *metricsv1alpha1.MetricsReportSpec, now time.Time) (resend bool, err error) {
	same := spec.Session == r.session
	switch {
	case same && spec.Sequence <= r.sequence:
		return true, nil // it was overtaken
	case spec.Begin:
		r.feed.Begin()
		r.begun = true
		if r.renewed.IsZero() {
			r.renewed = now // there is nothing older
		}
	case !same || spec.Sequence != r.sequence+1:
		return true, nil
	}
	r.session, r.sequence = spec.Session, spec.Sequence
	before := r.feed.Len()
	defer func() {
		if r.feed.Len() != before || len(spec.Removed) > 0 || spec.End {
			r.chosen = chosen{} // it may run other workloads
		}
	}()
	for i := range spec.Items {
		err := fmt.Errorf("%w: it has %d workloads", errTooMuch, r.most)
		if r.feed.Len() < r.most {
			err = r.apply(cluster, &spec.Items[i])
		}
		if err != nil {
			r.session = "" // the next report continues what is not held
			return false, err
		}
	}
	for _, workload := range spec.Removed {
		r.feed.DeleteObject(workload.Namespace, nameOf(workload.WorkloadReference, cluster))
	}
	if spec.End && r.begun {
		r.feed.End()
		r.begun = false
	}
	if !r.begun {
		r.renewed = now
	}
	return false, nil
}

func (r *reporter) apply(cluster string, item *metricsv1alpha1.WorkloadMetrics) error {
	raw, err := encode(cluster, item)
	if err != nil {
		return err
	}
	if len(raw) > maxItem {
		return fmt.Errorf("%w: the metrics of %s %s/%s have %d bytes", errTooMuch, item.Workload.Kind, item.Namespace, item.Workload.Name, len(raw))
	}
	return r.feed.Apply(raw)
}

// expire removes everything if it was not renewed since a time, and reports whether it did.
func (r *reporter) expire(before time.Time, shown bool) bool {
	if !r.mu.TryLock() {
		return false // a report is being taken
	}
	defer r.mu.Unlock()
	if shown && r.renewed.After(before) {
		return false
	}
	r.feed.Drop()
	r.gone = true
	return true
}
