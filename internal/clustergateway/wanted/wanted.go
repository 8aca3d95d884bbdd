// Package wanted knows which metrics the autoscalers of the federation need.
package wanted

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Autoscalers are the FederatedHPAs of the federation, and its HorizontalPodAutoscalers that no policy propagates.
type Autoscalers struct {
	federation client.WithWatch

	mu    sync.Mutex
	kinds []*kind
	// current is nil if it has to be computed.
	current *metricsv1alpha1.WantedMetrics
}

// New returns the autoscalers in the gateway's view of all templates. They are not known before Run.
func New(federation *rest.Config) (*Autoscalers, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{autoscalingv2.AddToScheme, autoscalingv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	objects, err := client.NewWithWatch(federation, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	a := &Autoscalers{federation: objects}
	for _, list := range []func() client.ObjectList{
		func() client.ObjectList { return &autoscalingv2.HorizontalPodAutoscalerList{} },
		func() client.ObjectList { return &autoscalingv1alpha1.FederatedHPAList{} },
	} {
		a.kinds = append(a.kinds, &kind{of: a, list: list})
	}
	return a, nil
}

// Run follows the autoscalers until the context ends.
func (a *Autoscalers) Run(ctx context.Context) {
	var wait sync.WaitGroup
	for _, k := range a.kinds {
		wait.Go(func() {
			fleet.Watch(ctx, k.source(a.federation), k, fleet.EachReason(func(err error) {
				klog.FromContext(ctx).Info("cannot watch the autoscalers of the federation, retrying", "err", err)
			}))
		})
	}
	wait.Wait()
}

// Metrics returns the metrics that are wanted; nil while not all autoscalers are known. It must not be changed.
func (a *Autoscalers) Metrics() *metricsv1alpha1.WantedMetrics {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != nil {
		return a.current
	}
	byWorkload := map[metricsv1alpha1.NamespacedWorkload][]metricsv1alpha1.WantedMetric{}
	for _, k := range a.kinds {
		if k.wants == nil {
			return nil
		}
		for _, w := range k.wants {
			byWorkload[w.NamespacedWorkload] = append(byWorkload[w.NamespacedWorkload], w.Metrics...)
		}
	}
	a.current = combine(byWorkload)
	return a.current
}

// combine sorts what is wanted, so that equal wishes are equal. Versions are those of what each cluster gets of it.
func combine(byWorkload map[metricsv1alpha1.NamespacedWorkload][]metricsv1alpha1.WantedMetric) *metricsv1alpha1.WantedMetrics {
	all := &metricsv1alpha1.WantedMetrics{}
	for workload, metrics := range byWorkload {
		slices.SortFunc(metrics, func(a, b metricsv1alpha1.WantedMetric) int {
			return slices.Compare(fields(a), fields(b))
		})
		metrics = slices.Compact(metrics)
		all.Workloads = append(all.Workloads, metricsv1alpha1.WantedWorkload{NamespacedWorkload: workload, Metrics: metrics[:min(len(metrics), autoscale.MostMetrics)]})
	}
	slices.SortFunc(all.Workloads, func(a, b metricsv1alpha1.WantedWorkload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.APIVersion, b.APIVersion))
	})
	return all
}

func fields(m metricsv1alpha1.WantedMetric) []string {
	return []string{string(m.Resource), m.Container, m.Name, m.Selector, m.Object.APIVersion, m.Object.Kind, m.Object.Name, strconv.FormatBool(m.External)}
}

// kind is a kind of autoscaler. It implements fleet.Sink.
type kind struct {
	of   *Autoscalers
	list func() client.ObjectList

	// wants is nil before all are known.
	wants  map[types.NamespacedName]metricsv1alpha1.WantedWorkload
	listed map[types.NamespacedName]metricsv1alpha1.WantedWorkload // during a list
}

func (k *kind) source(objects client.WithWatch) fleet.Source {
	return fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := k.list()
			return list, objects.List(ctx, list, &client.ListOptions{Raw: &options})
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, k.list(), &client.ListOptions{Raw: &options})
		},
	}
}

// Set implements fleet.Sink.
func (k *kind) Set(obj runtime.Object) {
	object, ok := obj.(client.Object)
	if !ok {
		return
	}
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	target := k.wants
	if k.listed != nil {
		target = k.listed
	}
	key := client.ObjectKeyFromObject(object)
	wants, ok := wantsOf(object)
	if !ok {
		delete(target, key)
	} else {
		target[key] = wants
	}
	k.of.current = nil
}

// Unset implements fleet.Sink.
func (k *kind) Unset(obj runtime.Object) {
	if object, ok := obj.(client.Object); ok {
		k.of.mu.Lock()
		defer k.of.mu.Unlock()
		delete(k.wants, client.ObjectKeyFromObject(object))
		k.of.current = nil
	}
}

// Relist implements fleet.Sink.
func (k *kind) Relist() func(string) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.listed = map[types.NamespacedName]metricsv1alpha1.WantedWorkload{}
	return func(string) {
		k.of.mu.Lock()
		defer k.of.mu.Unlock()
		k.wants, k.listed, k.of.current = k.listed, nil, nil
	}
}

// wantsOf returns what an autoscaler wants; false if it does not scale in the federation.
func wantsOf(object client.Object) (metricsv1alpha1.WantedWorkload, bool) {
	switch autoscaler := object.(type) {
	case *autoscalingv1alpha1.FederatedHPA:
		return workloadOf(autoscaler.Namespace, autoscaler.Spec.ScaleTargetRef, autoscaler.Spec.Metrics), true
	case *autoscalingv2.HorizontalPodAutoscaler:
		propagated := !cell.ClaimOf(autoscaler.Labels, autoscaler.Annotations).Empty()
		return workloadOf(autoscaler.Namespace, autoscaler.Spec.ScaleTargetRef, autoscaler.Spec.Metrics), !propagated
	}
	return metricsv1alpha1.WantedWorkload{}, false
}

func workloadOf(namespace string, target autoscalingv2.CrossVersionObjectReference, metrics []autoscalingv2.MetricSpec) metricsv1alpha1.WantedWorkload {
	w := metricsv1alpha1.WantedWorkload{NamespacedWorkload: metricsv1alpha1.NamespacedWorkload{
		Namespace:         namespace,
		WorkloadReference: metricsv1alpha1.WorkloadReference{APIVersion: target.APIVersion, Kind: target.Kind, Name: target.Name},
	}}
	for _, spec := range metrics {
		metric, _, err := autoscale.MetricOf(spec)
		if err != nil {
			continue // the autoscaler itself reports it
		}
		if m := autoscale.EncodeWanted(metric); autoscale.Acceptable(m) && len(w.Metrics) < autoscale.MostMetrics {
			w.Metrics = append(w.Metrics, m)
		}
	}
	return w
}
