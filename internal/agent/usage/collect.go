// Package usage collects what the pods of federated workloads use in a cluster.
package usage

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// Collector follows the workloads and pods of a cluster, and asks it for their metrics.
type Collector struct {
	workloads []followed
	pods      cache.SharedIndexInformer
	metrics   metricsclient.PodMetricsesGetter
	values    *values
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
	if c.values, err = newValues(member); err != nil {
		return nil, err
	}
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
		{APIGroups: []string{customGroup, externalGroup}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
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
	wishes := wishesOf(wanted)
	workloads := c.managed()
	answers := make(chan map[question]answer, 1)
	go func() { answers <- c.values.ask(ctx, questionsOf(workloads, wishes)) }()
	used, err := c.used(ctx)
	answered := <-answers
	if err != nil {
		return nil, err
	}
	pods := newPodIndex(c.pods.GetStore().List())
	all := make([]metricsv1alpha1.WorkloadMetrics, 0, len(workloads))
	for _, w := range workloads {
		metrics, scaled := wishes[w.key]
		item := sum(summing{w, pods.selected(w.key.namespace, w.selector), used, answered, now}, metrics)
		if scaled {
			item.Labels = map[string]string{names.AutoscalerLabel: "true"}
		}
		all = append(all, item)
	}
	return all, nil
}

// managed returns the workloads of the federation in the cluster.
func (c *Collector) managed() []workload {
	var all []workload
	for _, followed := range c.workloads {
		for _, object := range followed.informer.GetStore().List() {
			if w, ok := followed.workload(object); ok {
				all = append(all, w)
			}
		}
	}
	return all
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
