package tainteviction

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// TestWaitingEvictions counts the workloads that wait for their eviction, by cluster and kind.
func TestWaitingEvictions(t *testing.T) {
	c, err := cell.New(&rest.Config{Host: "https://127.0.0.1:1"}, cell.Options{Name: "cell-a"}) // only the cache is used
	if err != nil {
		t.Fatal(err)
	}
	controller := New(c, nil, nil, Options{})
	for name, taints := range map[string][]corev1.Taint{"down": {{Key: "down", Effect: corev1.TaintEffectNoExecute}}, "up": nil} {
		c.Clusters.Set(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Spec: clusterv1alpha1.ClusterSpec{Taints: taints}})
	}
	keys := map[string]cell.Key{}
	for name, in := range map[string]string{"web": "down", "api": "down", "moved": "up"} {
		keys[name] = cell.Key{Namespace: "ns", Name: name}
		b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: "1"}}
		b.Spec.Resource.Kind, b.Spec.Placement = "Deployment", &policyv1alpha1.Placement{}
		b.Spec.Clusters = []workv1alpha2.TargetCluster{{Name: in}}
		c.Bindings("ns").Set(b)
		controller.awaited(keys[name])
	}
	counts := func(depth, kinds float64) map[string]float64 {
		want := map[string]float64{
			"eviction_queue_depth binding-eviction": depth, "eviction_queue_depth cluster-binding-eviction": 0, "eviction_kind_total down Deployment": kinds,
		}
		maps.DeleteFunc(want, func(name string, n float64) bool { return n == 0 && name == "eviction_kind_total down Deployment" })
		return want
	}
	if got, want := gather(t, controller), counts(2, 2); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	controller.forget(keys["web"])
	controller.forget(keys["api"])
	if got, want := gather(t, controller), counts(0, 0); !maps.Equal(got, want) {
		t.Errorf("after the evictions: got %v, want %v", got, want)
	}
}

// TestProcessedEvictions counts attempts by queue and result.
func TestProcessedEvictions(t *testing.T) {
	before := gather(t, Collectors()...)
	record(cell.Key{Namespace: "ns", Name: "web"}, nil, time.Second)
	record(cell.Key{Name: "reader"}, fmt.Errorf("refused"), time.Second)
	after := gather(t, Collectors()...)
	for _, name := range []string{
		"eviction_processing_total binding-eviction success", "eviction_processing_total cluster-binding-eviction error",
		"eviction_processing_latency_seconds binding-eviction", "eviction_processing_latency_seconds cluster-binding-eviction",
	} {
		if after[name] != before[name]+1 {
			t.Errorf("%s went from %v to %v", name, before[name], after[name])
		}
	}
}

// gather returns the values of metrics by name and labels; of a histogram, the number of observations.
func gather(t *testing.T, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			name := family.GetName()
			for _, label := range sample.GetLabel() {
				name += " " + label.GetValue()
			}
			all[name] = sample.GetCounter().GetValue() + sample.GetGauge().GetValue() + float64(sample.GetHistogram().GetSampleCount())
		}
	}
	return all
}
