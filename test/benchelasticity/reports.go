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

// request is what a pod requests, and usual what it uses in the middle, in thousandths of a CPU.
const (
	request = 1000
	usual   = 500
)

func workload(i int) string { return fmt.Sprintf("web-%05d", i) }

// reporters report for all clusters.
type reporters struct {
	byCluster map[string]*push.Reporter
	// use is what a pod of a workload uses; pods is how many there are in each cluster.
	use   []int64
	pods  []int32
	bytes atomic.Int64
	began metav1.Time
	// scaled is how many of the workloads have an autoscaler.
	scaled int
}

func newReporters(f *federation, s settings) (*reporters, error) {
	r := &reporters{byCluster: map[string]*push.Reporter{}, use: make([]int64, s.workloads), pods: make([]int32, s.workloads), began: metav1.Now()}
	for i := range s.workloads {
		r.use[i], r.pods[i] = usual, 1
	}
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

// sender sends reports of a cluster, as its agent does, and counts their bytes.
func (r *reporters) sender(gateway rest.Interface, cluster string) func(context.Context, *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error) {
	return func(ctx context.Context, spec *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error) {
		body, err := json.Marshal(metricsv1alpha1.MetricsReport{Spec: *spec})
		if err != nil {
			return nil, err
		}
		r.bytes.Add(int64(len(body)))
		data, err := gateway.Post().AbsPath(views.ReportsPath+cluster).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		answer := &metricsv1alpha1.MetricsReport{}
		return &answer.Status, json.Unmarshal(data, answer)
	}
}

// report lets all clusters report.
func (r *reporters) report(ctx context.Context) error {
	var group errgroup.Group
	for cluster, reporter := range r.byCluster {
		group.Go(func() error {
			if err := reporter.Report(ctx, r.items(time.Now())); err != nil {
				return fmt.Errorf("reporting as %s: %w", cluster, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// items are the metrics of all workloads in a cluster. They are alike in all clusters.
func (r *reporters) items(now time.Time) []metricsv1alpha1.WorkloadMetrics {
	all := make([]metricsv1alpha1.WorkloadMetrics, len(r.use))
	for i, use := range r.use {
		pods := r.pods[i]
		part := func(metric corev1.ResourceName, usage, request int64) metricsv1alpha1.MetricSums {
			return autoscale.Encode(autoscale.Metric{Resource: metric}, autoscale.Sums{
				Measured: pods, Usage: usage * int64(pods), Requests: request * int64(pods), Time: now, Window: 15 * time.Second,
			})
		}
		all[i] = metricsv1alpha1.WorkloadMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: types.UID(fmt.Sprintf("5f1c9c5e-0000-4000-8000-%012d", i)), CreationTimestamp: r.began},
			Workload:   metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: workload(i)},
			Timestamp:  metav1.NewTime(now), Pods: metricsv1alpha1.PodCounts{Total: pods, Ready: pods},
			Metrics: []metricsv1alpha1.MetricSums{part(corev1.ResourceCPU, use, request), part(corev1.ResourceMemory, use<<30, request<<30)},
		}
		if i < r.scaled {
			all[i].Labels = map[string]string{names.AutoscalerLabel: "true"}
		}
	}
	return all
}

// vary changes what all workloads use, by more than noise, and by less than an autoscaler tolerates.
func (r *reporters) vary(round int) {
	for i := range r.use {
		r.use[i] = usual + int64(1-2*(round%2))*15
	}
}

// steadily reports once in each interval, with all workloads changed.
func (r *reporters) steadily(ctx context.Context, s settings) error {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for round := range s.rounds {
		r.vary(round)
		if err := r.report(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// measureReports measures reports of workloads without autoscalers.
func measureReports(ctx context.Context, f *federation, r *reporters, s settings) error {
	if err := r.report(ctx); err != nil {
		return err
	}
	parts := []string{"gateway", "cluster-gateway"}
	idle, err := f.cores(ctx, parts, func() error { return pause(ctx, s.interval) })
	if err != nil {
		return err
	}
	before := r.bytes.Load()
	cores, err := f.cores(ctx, parts, func() error { return r.steadily(ctx, s) })
	if err != nil {
		return err
	}
	samples := s.workloads * len(clusters) * s.rounds
	fmt.Printf("%d workloads in %d clusters, all changed, every %s (%.0f samples a second)\n", s.workloads, len(clusters), s.interval,
		float64(s.workloads*len(clusters))/s.interval.Seconds())
	show("cores of gateway and cluster-gateway", "%.2f   target at 20000 samples a second: 1.5", cores)
	show("  without reports", "%.2f", idle)
	show("bytes of a sample, as sent", "%.0f   target: 400", float64(r.bytes.Load()-before)/float64(samples))
	return nil
}

// pause waits.
func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}
