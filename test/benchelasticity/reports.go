package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/push"
	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// namespace has the workloads.
const namespace = "elastic"

// request is what a pod requests, and usual what it uses in the middle, in thousandths of a CPU. In each round the use differs from usual by swing: by more than
// noise from one round to the next, which is not reported, and by less than an autoscaler tolerates.
const (
	request = 1000
	usual   = 500
	swing   = 15
)

func workload(i int) string { return fmt.Sprintf("web-%05d", i) }

// reporters report for all clusters, each at its own times, as agents do.
type reporters struct {
	byCluster map[string]*push.Reporter
	interval  time.Duration
	began     metav1.Time
	// scaled is how many of the workloads have an autoscaler; busy are those whose pods use twice as much.
	scaled atomic.Int32
	busy   []atomic.Bool
	loads  loads

	// samples and bytes are those that were sent, rounds how often a cluster has reported, and longest how long that took at most.
	samples, bytes, rounds, longest atomic.Int64
}

func newReporters(f *federation, s settings) (*reporters, error) {
	r := &reporters{byCluster: map[string]*push.Reporter{}, interval: s.interval, began: metav1.Now(), busy: make([]atomic.Bool, s.workloads)}
	for _, cluster := range clusters {
		config, err := read(filepath.Join(f.dir, "federation", "agent-"+cluster+".kubeconfig"), "")
		if err != nil {
			return nil, err
		}
		gateway, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return nil, err
		}
		r.byCluster[cluster] = push.New(r.sender(gateway.RESTClient(), cluster))
	}
	return r, nil
}

// sender sends reports of a cluster, as its agent does, and counts what is sent.
func (r *reporters) sender(gateway rest.Interface, cluster string) func(context.Context, *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error) {
	return func(ctx context.Context, spec *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error) {
		body, err := json.Marshal(metricsv1alpha1.MetricsReport{Spec: *spec})
		if err != nil {
			return nil, err
		}
		r.bytes.Add(int64(len(body)))
		r.samples.Add(int64(len(spec.Items)))
		r.loads.pushed(spec.Items, time.Now())
		data, err := gateway.Post().AbsPath(views.ReportsPath+cluster).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		answer := &metricsv1alpha1.MetricsReport{}
		return &answer.Status, json.Unmarshal(data, answer)
	}
}

// run reports until the context ends: each cluster once in each interval, with all workloads changed. The clusters take turns, because agents do not report all
// at once.
func (r *reporters) run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	for i, cluster := range clusters {
		group.Go(func() error {
			if pause(running, r.interval*time.Duration(i)/time.Duration(len(clusters))) != nil {
				return nil
			}
			if err := r.runCluster(running, r.byCluster[cluster]); err != nil && running.Err() == nil {
				return fmt.Errorf("reporting as %s: %w", cluster, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (r *reporters) runCluster(ctx context.Context, reporter *push.Reporter) error {
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	for round := 0; ; round++ {
		began := time.Now()
		if err := reporter.Report(ctx, r.items(round, began)); err != nil {
			return err
		}
		r.longest.Store(max(r.longest.Load(), int64(time.Since(began))))
		r.rounds.Add(1)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// use returns what a pod uses in a round.
func (r *reporters) use(workload, round int) int64 {
	use := int64(usual + (1-2*(round%2))*swing)
	if r.busy[workload].Load() {
		use *= 2
	}
	return use
}

// items are the metrics of all workloads in a cluster, which has one pod of each.
func (r *reporters) items(round int, now time.Time) []metricsv1alpha1.WorkloadMetrics {
	all := make([]metricsv1alpha1.WorkloadMetrics, len(r.busy))
	for i := range all {
		part := func(metric corev1.ResourceName, usage, request int64) metricsv1alpha1.MetricSums {
			return autoscale.Encode(autoscale.Metric{Resource: metric}, autoscale.Sums{Measured: 1, Usage: usage, Requests: request, Time: now, Window: 15 * time.Second})
		}
		use := r.use(i, round)
		all[i] = metricsv1alpha1.WorkloadMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: types.UID(fmt.Sprintf("5f1c9c5e-0000-4000-8000-%012d", i)), CreationTimestamp: r.began},
			Workload:   metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: workload(i)},
			Timestamp:  metav1.NewTime(now), Pods: metricsv1alpha1.PodCounts{Total: 1, Ready: 1},
			Metrics: []metricsv1alpha1.MetricSums{part(corev1.ResourceCPU, use, request), part(corev1.ResourceMemory, use<<30, request<<30)},
		}
		if i < int(r.scaled.Load()) {
			all[i].Labels = map[string]string{names.AutoscalerLabel: "true"}
		}
	}
	return all
}

// all waits until each cluster has reported once more, with everything that it knows now.
func (r *reporters) all(ctx context.Context) error {
	from := r.rounds.Load()
	return until(ctx, "all clusters have reported", func() (bool, error) { return r.rounds.Load() >= from+int64(2*len(clusters)), nil })
}

// measureReports measures reports of workloads without autoscalers. Idle is how many cores the parts use without reports.
func measureReports(ctx context.Context, f *federation, r *reporters, s settings, idle float64) error {
	if err := r.all(ctx); err != nil {
		return err
	}
	samples, bytes, began := r.samples.Load(), r.bytes.Load(), time.Now()
	cores, err := f.cores(ctx, reporting, func() error { return pause(ctx, s.interval*time.Duration(s.rounds)) })
	if err != nil {
		return err
	}
	samples, bytes = r.samples.Load()-samples, r.bytes.Load()-bytes
	rate := float64(samples) / time.Since(began).Seconds()
	fmt.Printf("%d workloads in %d clusters, all changed, every %s\n", s.workloads, len(clusters), s.interval)
	show("samples a second, as sent; as wanted", "%.0f; %.0f", rate, float64(s.workloads*len(clusters))/s.interval.Seconds())
	show("longest report of a cluster", "%.1f s of %s", time.Duration(r.longest.Load()).Seconds(), s.interval)
	show("cores of gateway and cluster-gateway; without reports", "%.2f; %.2f   target at 20000 samples a second: 1.5", cores, idle)
	show("CPU of a sample", "%.0f µs   target: 75 µs", (cores-idle)/rate*1e6)
	show("bytes of a sample, as sent", "%.0f   target: 400", float64(bytes)/float64(samples))
	return nil
}

// pause waits.
func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(duration):
		return nil
	}
}
