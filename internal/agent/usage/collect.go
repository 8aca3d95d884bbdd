// Package usage collects what the pods of federated workloads use in a cluster.
package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/autoscale"
)

// Collector follows the workloads and pods of a cluster, and asks it for their metrics.
type Collector struct {
	workloads []followed
	pods      cache.SharedIndexInformer
	metrics   metricsclient.PodMetricsesGetter
}

// New returns a Collector. It knows nothing before Run.
func New(member *rest.Config) (*Collector, error) {
	client, err := kubernetes.NewForConfig(member)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	metrics, err := metricsclient.NewForConfig(member)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	c := &Collector{metrics: metrics, workloads: followWorkloads(client)}
	c.pods, err = followPods(client)
	return c, err
}

// Rules returns the permissions that a Collector needs in the cluster.
func Rules() []rbacv1.PolicyRule {
	read := []string{"list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"}, Verbs: read},
		{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}
}

// Run follows workloads and pods until the context ends. It calls known when all are known.
func (c *Collector) Run(ctx context.Context, known func(context.Context)) {
	informers := []cache.SharedIndexInformer{c.pods}
	for _, w := range c.workloads {
		informers = append(informers, w.informer)
	}
	synced := make([]cache.InformerSynced, len(informers))
	for i, informer := range informers {
		go informer.RunWithContext(ctx)
		synced[i] = informer.HasSynced
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		known(ctx)
	}
}

// Collect returns the metrics of all workloads: of CPU and memory, and those that autoscalers want. If the cluster has no metrics, pods have no samples.
func (c *Collector) Collect(ctx context.Context, wanted *metricsv1alpha1.WantedMetrics, now time.Time) ([]metricsv1alpha1.WorkloadMetrics, error) {
	used, err := c.used(ctx)
	if err != nil {
		return nil, err
	}
	pods := newPodIndex(c.pods.GetStore().List())
	wishes := wishesOf(wanted)
	var all []metricsv1alpha1.WorkloadMetrics
	for _, followed := range c.workloads {
		for _, object := range followed.informer.GetStore().List() {
			w, ok := followed.workload(object)
			if !ok {
				continue
			}
			metrics, scaled := wishes[w.key]
			item := sum(w, pods.selected(w.key.namespace, w.selector), used, metrics, now)
			if scaled {
				item.Labels = map[string]string{names.AutoscalerLabel: "true"}
			}
			all = append(all, item)
		}
	}
	return all, nil
}

// used returns the metrics of all pods.
func (c *Collector) used(ctx context.Context) (map[types.NamespacedName]v1beta1.PodMetrics, error) {
	list, err := c.metrics.PodMetricses("").List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the metrics of the cluster: %w", err)
	}
	used := map[types.NamespacedName]v1beta1.PodMetrics{}
	if err == nil {
		for _, pod := range list.Items {
			used[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
		}
	}
	return used, nil
}

// usual are the metrics of every workload.
var usual = []autoscale.Metric{{Resource: corev1.ResourceCPU}, {Resource: corev1.ResourceMemory}}

// sum returns the metrics of a workload.
func sum(w workload, pods []*corev1.Pod, used map[types.NamespacedName]v1beta1.PodMetrics, more []autoscale.Metric, now time.Time) metricsv1alpha1.WorkloadMetrics {
	counts := autoscale.Count(pods)
	item := metricsv1alpha1.WorkloadMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.key.namespace, UID: w.uid, CreationTimestamp: w.created},
		Workload:   metricsv1alpha1.WorkloadReference{APIVersion: w.apiVersion, Kind: w.key.kind.Kind, Name: w.key.name},
		Timestamp:  metav1.NewTime(now), Pods: metricsv1alpha1.PodCounts{Total: counts.Total, Ready: counts.Ready},
	}
	var samples []v1beta1.PodMetrics
	for _, pod := range pods {
		if sample, found := used[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; found {
			samples = append(samples, sample)
		}
	}
	for _, metric := range slices.Concat(usual, more) {
		item.Metrics = append(item.Metrics, autoscale.Encode(metric, autoscale.Sum(pods, metric, autoscale.ResourceSamples(samples, metric), autoscale.DefaultStartup, now)))
	}
	return item
}

// workloadKey names a workload. Its version does not matter.
type workloadKey struct {
	kind            schema.GroupKind
	namespace, name string
}

// wishesOf returns the metrics that are wanted besides the usual ones. Only resource metrics are collected.
func wishesOf(wanted *metricsv1alpha1.WantedMetrics) map[workloadKey][]autoscale.Metric {
	wishes := map[workloadKey][]autoscale.Metric{}
	for _, w := range wanted.Workloads {
		gv, err := schema.ParseGroupVersion(w.APIVersion)
		if err != nil {
			continue // nothing has such a version
		}
		key := workloadKey{gv.WithKind(w.Kind).GroupKind(), w.Namespace, w.Name}
		metrics := wishes[key]
		for _, m := range w.Metrics {
			metric := autoscale.Metric{Resource: m.Resource, Container: m.Container}
			if metric.Resource != "" && !slices.Contains(usual, metric) && !slices.Contains(metrics, metric) {
				metrics = append(metrics, metric)
			}
		}
		wishes[key] = metrics
	}
	return wishes
}
