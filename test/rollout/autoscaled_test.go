package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/push"
	"github.com/cellplane/cellplane/internal/autoscale"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/parts"
	"github.com/cellplane/cellplane/internal/testenv"
)

// rollOutAutoscaled updates a workload twice. In the middle of the first update a FederatedHPA scales it out, in the middle of the second it scales it in. While the
// number of replicas changes, the bounds are the looser ones of both numbers, then those of the new one.
func rollOutAutoscaled(t *testing.T, world *cellWorld) {
	w := world.newWorkload("autoscaled", "cell-a")
	w.slow = readiness{500 * time.Millisecond, 2 * time.Second}
	w.begin(8, intstr.FromString("20%"), intstr.FromString("10%"))
	load := world.autoscale(w, 4, 16)
	w.watch(8)
	replicas, version := int32(8), 1
	for _, next := range []int32{12, 6} {
		version++
		w.setImage(version)
		w.begun(version)
		w.allow(replicas, next)
		load(next)
		testenv.Eventually(t, "the autoscaler has scaled the template", func(ctx context.Context) (bool, error) {
			d := w.ref()
			if err := w.api().Get(ctx, ctrlclient.ObjectKeyFromObject(d), d); err != nil {
				return false, err
			}
			return *d.Spec.Replicas == next, fmt.Errorf("it has %d replicas", *d.Spec.Replicas)
		})
		if w.old(version) == 0 {
			t.Errorf("the update to version %d had finished before the workload was scaled", version)
		}
		w.placed()
		w.finished(version, next)
		w.pods.held("an update while an autoscaler changes the replicas")
		w.allow(next)
		replicas = next
	}
}

// autoscale creates an autoscaler of a workload. Until the function is called, no cluster reports anything, and nothing is scaled. It reports in the name of the
// agents that there is work for so many replicas.
func (w *cellWorld) autoscale(workload *workload, least, most int32) (load func(replicas int32)) {
	w.Helper()
	one := resource.MustParse("1")
	err := w.gateway.Create(w.Context(), &autoscalingv1alpha1.FederatedHPA{ObjectMeta: metav1.ObjectMeta{Namespace: workload.ns, Name: "web"}, Spec: autoscalingv1alpha1.FederatedHPASpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MinReplicas: &least, MaxReplicas: most,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &one},
		}}},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0)}},
	}})
	if err != nil {
		w.Fatal(err)
	}
	gateway, err := discovery.NewDiscoveryClientForConfig(w.config(parts.GatewayContext))
	if err != nil {
		w.Fatal(err)
	}
	reporters := map[string]*push.Reporter{}
	for name := range members {
		reporters[name] = push.New(func(ctx context.Context, spec *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error) {
			body, err := json.Marshal(metricsv1alpha1.MetricsReport{Spec: *spec})
			if err != nil {
				return nil, err
			}
			data, err := gateway.RESTClient().Post().AbsPath(views.ReportsPath+name).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
			if err != nil {
				return nil, err
			}
			answer := &metricsv1alpha1.MetricsReport{}
			return &answer.Status, json.Unmarshal(data, answer)
		})
	}
	return func(replicas int32) {
		w.Helper()
		for name, reporter := range reporters {
			d := workload.in(name)
			pods := *d.Spec.Replicas // without those of the update, with which the present number could be within the tolerance
			queue := autoscale.EncodeValue(autoscale.Metric{Name: "queue", External: true}, int64(replicas)*1000/int64(len(reporters)))
			item := metricsv1alpha1.WorkloadMetrics{
				ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, UID: d.UID, CreationTimestamp: d.CreationTimestamp, Labels: map[string]string{names.AutoscalerLabel: "true"}},
				Workload:   metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name},
				Timestamp:  metav1.Now(), Pods: metricsv1alpha1.PodCounts{Total: pods, Ready: pods}, Metrics: []metricsv1alpha1.MetricSums{queue},
			}
			testenv.Eventually(w, "the report of "+name+" is taken", func(ctx context.Context) (bool, error) {
				err := reporter.Report(ctx, []metricsv1alpha1.WorkloadMetrics{item})
				return err == nil, err
			})
		}
	}
}
