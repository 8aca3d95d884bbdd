package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

func workload(name string) target {
	return target{schema.GroupKind{Group: "apps", Kind: "Deployment"}, cell.Key{Namespace: "demo", Name: name}}
}

func plain(name, scaled string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, UID: "u"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		MaxReplicas: 9, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: scaled},
	}}
}

// TestScalers follows autoscalers that come, change and go.
func TestScalers(t *testing.T) {
	var changes []string
	s := newScalers(func(t target) { changes = append(changes, t.Name) })
	sink, federated := s.sink(plainKind), s.sink(federatedKind)
	propagated, elsewhere, observed := plain("a", "web"), plain("a", "api"), plain("a", "web")
	propagated.Labels = map[string]string{names.PropagationPolicyPermanentIDLabel: "id"}
	observed.Status.CurrentReplicas = 3
	fhpa := &autoscalingv1alpha1.FederatedHPA{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "a"}, Spec: autoscalingv1alpha1.FederatedHPASpec{MaxReplicas: 5, ScaleTargetRef: plain("a", "web").Spec.ScaleTargetRef}}
	for i, step := range []struct {
		what    string
		do      func()
		scaling string
		changes []string
	}{
		{"one that a policy propagates", func() { sink.Set(propagated) }, "[]", nil},
		{"which is not propagated any more", func() { sink.Set(plain("a", "web")) }, "[HorizontalPodAutoscaler]", []string{"web"}},
		{"whose status changes", func() { sink.Set(observed) }, "[HorizontalPodAutoscaler]", nil},
		{"one of the other kind", func() { federated.Set(fhpa) }, "[FederatedHPA HorizontalPodAutoscaler]", []string{"web"}},
		{"another target", func() { sink.Set(elsewhere) }, "[FederatedHPA]", []string{"web", "api"}},
		{"the first target again", func() { sink.Set(plain("a", "web")) }, "[FederatedHPA HorizontalPodAutoscaler]", []string{"api", "web"}},
		{"which a policy takes", func() { sink.Set(propagated) }, "[FederatedHPA]", []string{"web"}},
		{"a list of other ones", func() { done := federated.Relist(); done("") }, "[]", []string{"web"}},
	} {
		changes = nil
		step.do()
		kinds := []string{}
		for _, a := range s.of(workload("web")) {
			kinds = append(kinds, a.Kind)
		}
		if fmt.Sprint(kinds) != step.scaling || !slices.Equal(changes, step.changes) {
			t.Errorf("%d, %s: %v scale and %v have changed, want %s and %v", i, step.what, kinds, changes, step.scaling, step.changes)
		}
	}
}

// TestReportsOutOfDate checks that reports do not count when they cannot be watched, and that a cluster that is silent is not reported about.
func TestReportsOutOfDate(t *testing.T) {
	now := start
	r := newReports(func(target) {}, func() time.Time { return now })
	reported := func(cluster string) *metricsv1alpha1.WorkloadMetrics {
		return &metricsv1alpha1.WorkloadMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: names.WorkloadMetricsName("Deployment", "web", cluster)}, Cluster: cluster,
			Workload: metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, Pods: metricsv1alpha1.PodCounts{Total: 2, Ready: 1},
		}
	}
	for i, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"a list before the first watch", func() { done := r.Relist(); r.Set(reported("m1")); r.Set(reported("m2")); done("") }, 0},
		{"a watch", r.watched, 2},
		{"a failure", r.failed, 2},
		{"a second failure, soon", func() { now = now.Add(outage / 2); r.failed() }, 2},
		{"an outage", func() { now = now.Add(outage / 2) }, 0},
		{"a watch after it", r.watched, 2},
		{"a cluster falls silent", func() { r.Unset(reported("m2")) }, 1},
		{"a list without the other", func() { done := r.Relist(); r.Set(reported("m3")); done("") }, 1},
	} {
		step.do()
		if got := r.about(workload("web")); len(got) != step.want {
			t.Errorf("%d, %s: %d clusters report, want %d", i, step.what, len(got), step.want)
		}
	}
	if _, has := r.about(workload("web"))["m3"]; !has {
		t.Error("m3 does not report")
	}
}
