// Package push reports the metrics of a cluster's workloads to the federation: only what has changed, as the next report of a
// session, and everything if the federation asks for it.
package push

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

const (
	// batch is how many metrics and workloads are in a report together. One takes up to a kilobyte, and gateways accept 3 MiB.
	batch = 3000
	// noise is by how much the use of a workload without an autoscaler must change to be reported, in percent.
	noise = 2
)

// Reporter reports the metrics of one cluster. It must not be used concurrently.
type Reporter struct {
	send    func(context.Context, *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error)
	session string
	// sequence is that of the last report that was sent.
	sequence int64
	// sent are the metrics that the federation has, nil if that is not known.
	sent   map[metricsv1alpha1.NamespacedWorkload]metricsv1alpha1.WorkloadMetrics
	wanted *metricsv1alpha1.WantedMetrics
}

// New returns a Reporter that sends reports by a function.
func New(send func(context.Context, *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error)) *Reporter {
	return &Reporter{send: send, session: uuid.NewString(), wanted: &metricsv1alpha1.WantedMetrics{}}
}

// Wanted returns the metrics that autoscalers need, as of the last answer.
func (r *Reporter) Wanted() *metricsv1alpha1.WantedMetrics { return r.wanted }

// Report reports the metrics of all workloads. After a failure the next one sends everything.
func (r *Reporter) Report(ctx context.Context, all []metricsv1alpha1.WorkloadMetrics) error {
	now := make(map[metricsv1alpha1.NamespacedWorkload]metricsv1alpha1.WorkloadMetrics, len(all))
	for _, item := range all {
		now[metricsv1alpha1.NamespacedWorkload{Namespace: item.Namespace, WorkloadReference: item.Workload}] = item
	}
	if r.sent != nil {
		resend, err := r.sendChanges(ctx, now)
		if !resend {
			return err
		}
	}
	return r.sendAll(ctx, now)
}

// sendChanges sends what has changed. It returns true if everything has to be sent.
func (r *Reporter) sendChanges(ctx context.Context, now map[metricsv1alpha1.NamespacedWorkload]metricsv1alpha1.WorkloadMetrics) (resend bool, err error) {
	var changed []metricsv1alpha1.NamespacedWorkload
	var removed []metricsv1alpha1.NamespacedWorkload
	for workload, item := range now {
		if before, found := r.sent[workload]; !found || differs(&before, &item) {
			changed = append(changed, workload)
		}
	}
	for workload := range r.sent {
		if _, found := now[workload]; !found {
			removed = append(removed, workload)
		}
	}
	slices.SortFunc(changed, compare)
	slices.SortFunc(removed, compare)
	sent := r.sent
	r.sent = nil // until it is known
	for first := true; first || len(changed)+len(removed) > 0; first = false {
		spec := &metricsv1alpha1.MetricsReportSpec{}
		var some []metricsv1alpha1.NamespacedWorkload
		some, changed = cut(changed, now)
		spec.Items = items(some, now)
		spec.Removed, removed = cut(removed, nil)
		if resend, err := r.next(ctx, spec); resend || err != nil {
			return resend, err
		}
		for _, workload := range some {
			sent[workload] = now[workload]
		}
		for _, workload := range spec.Removed {
			delete(sent, workload)
		}
	}
	r.sent = sent
	return false, nil
}

// sendAll sends everything.
func (r *Reporter) sendAll(ctx context.Context, now map[metricsv1alpha1.NamespacedWorkload]metricsv1alpha1.WorkloadMetrics) error {
	r.sent = nil
	left := slices.SortedFunc(maps.Keys(now), compare)
	for first := true; first || len(left) > 0; first = false {
		spec := &metricsv1alpha1.MetricsReportSpec{Begin: first}
		var some []metricsv1alpha1.NamespacedWorkload
		some, left = cut(left, now)
		spec.Items, spec.End = items(some, now), len(left) == 0
		resend, err := r.next(ctx, spec)
		if err != nil {
			return err
		}
		if resend {
			return fmt.Errorf("the federation did not take report %d, and asks for everything again", spec.Sequence)
		}
	}
	r.sent = now
	return nil
}

// next sends the next report of the session.
func (r *Reporter) next(ctx context.Context, spec *metricsv1alpha1.MetricsReportSpec) (resend bool, err error) {
	r.sequence++
	spec.Session, spec.Sequence, spec.Wanted = r.session, r.sequence, r.wanted.Version
	status, err := r.send(ctx, spec)
	if err != nil {
		return false, err
	}
	if status.Wanted != nil {
		r.wanted = status.Wanted
	}
	return status.Resend, nil
}

func items(some []metricsv1alpha1.NamespacedWorkload, now map[metricsv1alpha1.NamespacedWorkload]metricsv1alpha1.WorkloadMetrics) []metricsv1alpha1.WorkloadMetrics {
	all := make([]metricsv1alpha1.WorkloadMetrics, len(some))
	for i, workload := range some {
		all[i] = now[workload]
	}
	return all
}

// cut returns a batch and the rest.
func cut(all []metricsv1alpha1.NamespacedWorkload, now map[metricsv1alpha1.NamespacedWorkload]metricsv1alpha1.WorkloadMetrics) (some, rest []metricsv1alpha1.NamespacedWorkload) {
	size := 0
	for i, workload := range all {
		if size += 1 + len(now[workload].Metrics); size > batch && i > 0 {
			return all[:i], all[i:]
		}
	}
	return all, nil
}

func compare(a, b metricsv1alpha1.NamespacedWorkload) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.APIVersion, b.APIVersion))
}

// differs reports whether metrics have changed beyond noise. Times alone do not count. For an autoscaler everything does.
func differs(before, now *metricsv1alpha1.WorkloadMetrics) bool {
	scaled := now.Labels[names.AutoscalerLabel]
	if before.UID != now.UID || before.Labels[names.AutoscalerLabel] != scaled || before.Pods != now.Pods || len(before.Metrics) != len(now.Metrics) {
		return true
	}
	for i := range now.Metrics {
		if sumsDiffer(before.Metrics[i], now.Metrics[i], scaled == "") {
			return true
		}
	}
	return false
}

func sumsDiffer(before, now metricsv1alpha1.MetricSums, noisy bool) bool {
	if noisy {
		was, is := before.Measured.Usage.MilliValue(), now.Measured.Usage.MilliValue()
		if change := float64(is) - float64(was); max(change, -change)*100 > noise*float64(was) {
			return true
		}
		before.Measured.Usage = now.Measured.Usage
	}
	before.Timestamp, before.Window = now.Timestamp, metav1.Duration{Duration: now.Window.Duration}
	return !equality.Semantic.DeepEqual(before, now)
}
