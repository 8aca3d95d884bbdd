package wanted

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
)

// TestBounds checks that autoscalers cannot make agents ask for any number of metrics of a workload, or for any size.
func TestBounds(t *testing.T) {
	external := func(name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: name}}}
	}
	metrics := []autoscalingv2.MetricSpec{external(strings.Repeat("a", autoscale.MostIdentity)), {Type: "Unknown"}}
	for i := range 2 * autoscale.MostMetrics {
		metrics = append(metrics, external(fmt.Sprintf("m-%d", i)))
	}
	target := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	first, second := workloadOf("demo", target, metrics), workloadOf("demo", target, metrics[10:])
	if len(first.Metrics) != autoscale.MostMetrics || first.Metrics[0].Name != "m-0" {
		t.Errorf("%d metrics are wanted, the first is %.20s", len(first.Metrics), first.Metrics[0].Name)
	}
	all := combine(map[metricsv1alpha1.NamespacedWorkload][]metricsv1alpha1.WantedMetric{first.NamespacedWorkload: append(first.Metrics, second.Metrics...)})
	if len(all.Workloads) != 1 || len(all.Workloads[0].Metrics) != autoscale.MostMetrics {
		t.Errorf("of several autoscalers, %+v is wanted", all.Workloads)
	}
}
