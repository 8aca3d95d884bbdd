package autoscaler

import (
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/autoscale"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// cpu asks for half of the requests.
var cpu = autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
	Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}}}

// placed returns a binding of a workload whose pods request one CPU. Its clusters m1, m2 and so on have these replicas.
func placed(strategy policyv1alpha1.ReplicaSchedulingType, replicas int32, clusters ...int32) *workv1alpha2.ResourceBinding {
	b := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{
		Replicas:            replicas,
		ReplicaRequirements: &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		Placement:           &policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{ReplicaSchedulingType: strategy}},
	}}
	for i, n := range clusters {
		b.Spec.Clusters = append(b.Spec.Clusters, workv1alpha2.TargetCluster{Name: "m" + string(rune('1'+i)), Replicas: n})
	}
	return b
}

// using is a report of ready pods that use a percentage of one CPU each.
func using(pods int32, percent int64) *report {
	return &report{pods: autoscale.Pods{Total: pods, Ready: pods}, parts: map[autoscale.Metric]autoscale.Part{
		{Resource: corev1.ResourceCPU}: {Sums: autoscale.Sums{Measured: pods, Usage: percent * 10 * int64(pods), Requests: 1000 * int64(pods)}},
	}}
}

// TestDecisions checks what is decided, without a window, from what clusters report.
func TestDecisions(t *testing.T) {
	const divided, duplicated = policyv1alpha1.ReplicaSchedulingTypeDivided, policyv1alpha1.ReplicaSchedulingTypeDuplicated
	leaving := placed(divided, 4, 4)
	leaving.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{{FromCluster: "m9"}}
	larger := placed(divided, 6, 4, 2)
	larger.Status.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{{ClusterName: "m2", Status: &runtime.RawExtension{Raw: []byte(`{"replicas":3}`)}}}
	for _, c := range []struct {
		name    string
		binding *workv1alpha2.ResourceBinding
		metric  autoscalingv2.MetricSpec
		reports map[string]*report
		want    int32
		silent  string
		err     string
	}{
		{name: "up by the sum", binding: placed(divided, 6, 4, 2), metric: cpu, reports: map[string]*report{"m1": using(4, 100), "m2": using(2, 25)}, want: 9},
		{name: "down by the sum", binding: placed(divided, 6, 4, 2), metric: cpu, reports: map[string]*report{"m1": using(4, 10), "m2": using(2, 20)}, want: 2},
		{name: "no scale-down with a silent cluster", binding: placed(divided, 6, 4, 2), metric: cpu, reports: map[string]*report{"m1": using(4, 0)}, want: 6, silent: "m2"},
		{name: "a silent cluster has its last replicas", binding: larger, metric: cpu, reports: map[string]*report{"m1": using(4, 90)}, want: 6, silent: "m2"},
		{name: "no scale-down of copies with a silent cluster", binding: placed(duplicated, 4, 4, 4), metric: cpu, reports: map[string]*report{"m1": using(4, 0)}, want: 4, silent: "m2"},
		{name: "a silent cluster is idle in a scale-up", binding: placed(divided, 6, 4, 2), metric: cpu, reports: map[string]*report{"m1": using(4, 100)}, want: 8, silent: "m2"},
		{name: "nobody reports", binding: placed(divided, 6, 4, 2), metric: cpu, want: 6, silent: "m1 m2", err: "no metrics of ready pods"},
		{name: "a cluster that it is not placed in has no say", binding: placed(divided, 4, 4), metric: cpu, reports: map[string]*report{"m1": using(4, 50), "m7": using(9, 100)}, want: 4},
		{name: "a cluster that it leaves has", binding: leaving, metric: cpu, reports: map[string]*report{"m1": using(4, 50), "m9": using(4, 100)}, want: 12},
		{name: "a cluster without replicas is not missed", binding: placed(divided, 4, 4, 0), metric: cpu, reports: map[string]*report{"m1": using(4, 50)}, want: 4},
		{name: "a metric that the agent does not know yet", binding: placed(divided, 4, 4), metric: cpu, reports: map[string]*report{"m1": {pods: autoscale.Pods{Total: 4, Ready: 4}}}, want: 4, err: "m1 lacks the cpu resource"},
		{name: "copies, up", binding: placed(duplicated, 2, 2, 2), metric: cpu, reports: map[string]*report{"m1": using(2, 100), "m2": using(2, 75)}, want: 4},
		{name: "copies, down", binding: placed(duplicated, 4, 4, 4), metric: cpu, reports: map[string]*report{"m1": using(4, 25), "m2": using(4, 25)}, want: 2},
		{name: "copies, as they should be", binding: placed(duplicated, 2, 2, 2), metric: cpu, reports: map[string]*report{"m1": using(2, 55), "m2": using(2, 45)}, want: 2},
		{name: "pods that a quota keeps away are not asked for again", binding: placed(divided, 12, 4, 2), metric: cpu, reports: map[string]*report{"m1": using(4, 100), "m2": using(2, 100)}, want: 12},
		{name: "pods that a quota keeps away, and that are not needed", binding: placed(divided, 12, 4, 2), metric: cpu, reports: map[string]*report{"m1": using(4, 25), "m2": using(2, 25)}, want: 3},
		{name: "nowhere", binding: placed(divided, 4), metric: cpu, want: 4, err: "not placed in any cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			metrics := []autoscalingv2.MetricSpec{c.metric}
			o := observe(evidence{binding: c.binding, reports: c.reports}, metrics)
			spec := &autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 100, Metrics: metrics, Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0)},
				ScaleUp:   &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 100, PeriodSeconds: 15}}},
			}}
			d := autoscale.Decide(spec, o.workload, o.readings, &autoscale.History{}, autoscale.DefaultSettings, start)
			if d.Replicas != c.want || strings.Join(o.silent, " ") != c.silent {
				t.Errorf("%d replicas with %v silent, want %d with %q", d.Replicas, o.silent, c.want, c.silent)
			}
			if (d.Err == nil) != (c.err == "") || d.Err != nil && !strings.Contains(d.Err.Error(), c.err) {
				t.Errorf("the error is %v, want %q", d.Err, c.err)
			}
			status := &autoscalingv2.HorizontalPodAutoscalerStatus{}
			decided(status, o, d, start)
			for _, cluster := range o.silent {
				if active := find(status, autoscalingv2.ScalingActive); active == nil || !strings.Contains(active.Message, cluster) {
					t.Errorf("the condition does not name %s: %v", cluster, active)
				}
			}
		})
	}
}

func find(status *autoscalingv2.HorizontalPodAutoscalerStatus, of autoscalingv2.HorizontalPodAutoscalerConditionType) *autoscalingv2.HorizontalPodAutoscalerCondition {
	return (&scaler{status: status}).condition(of)
}

// TestStatusIsWrittenRarely checks that usage, which changes all the time, does not make a write each time.
func TestStatusIsWrittenRarely(t *testing.T) {
	status := func(usage string, replicas int32) *autoscalingv2.HorizontalPodAutoscalerStatus {
		quantity := resource.MustParse(usage)
		return &autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: replicas, CurrentMetrics: []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageValue: &quantity}}}}}
	}
	for _, c := range []struct {
		name        string
		before, now *autoscalingv2.HorizontalPodAutoscalerStatus
		since       time.Duration
		want        bool
	}{
		{"nothing new", status("100m", 2), status("100m", 2), time.Hour, false},
		{"usage", status("100m", 2), status("110m", 2), 15 * time.Second, false},
		{"usage, after a minute", status("100m", 2), status("110m", 2), time.Minute, true},
		{"replicas", status("100m", 2), status("100m", 3), time.Second, true},
		{"the first usage", &autoscalingv2.HorizontalPodAutoscalerStatus{CurrentReplicas: 2}, status("100m", 2), time.Second, true},
	} {
		if got := worthWriting(c.before, c.now, start, start.Add(c.since)); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

// TestPeriodOfAnotherEngine checks that an engine that takes over waits for the rest of a period, unless the other one's clock was ahead.
func TestPeriodOfAnotherEngine(t *testing.T) {
	for _, c := range []struct {
		name  string
		tried time.Time
		last  *metav1.Time
		want  time.Time
	}{
		{"never scaled", time.Time{}, nil, time.Time{}},
		{"scaled by another engine", time.Time{}, ptr.To(metav1.NewTime(start.Add(-time.Second))), start.Add(-time.Second)},
		{"refused since then", start.Add(-time.Second), ptr.To(metav1.NewTime(start.Add(-time.Minute))), start.Add(-time.Second)},
		{"scaled in the future", time.Time{}, ptr.To(metav1.NewTime(start.Add(time.Hour))), time.Time{}},
	} {
		s := &scaler{status: &autoscalingv2.HorizontalPodAutoscalerStatus{LastScaleTime: c.last}}
		if got := lastTried(s, &state{tried: c.tried}, start); !got.Equal(c.want) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestConditionTimes checks that the time of a condition is that of its last change of status.
func TestConditionTimes(t *testing.T) {
	status := &autoscalingv2.HorizontalPodAutoscalerStatus{}
	for i, c := range []struct {
		is   corev1.ConditionStatus
		want int
	}{{corev1.ConditionTrue, 0}, {corev1.ConditionTrue, 0}, {corev1.ConditionFalse, 2}} {
		set(status, condition(autoscalingv2.AbleToScale, c.is, "Reason", ""), start.Add(time.Duration(i)*time.Minute))
		if want := metav1.NewTime(start.Add(time.Duration(c.want) * time.Minute)); len(status.Conditions) != 1 || !status.Conditions[0].LastTransitionTime.Equal(&want) {
			t.Errorf("%d: the conditions are %v", i, status.Conditions)
		}
	}
}

// valued adds what a cluster knows of a metric to a report.
func (r *report) valued(metric autoscale.Metric, value int64) *report {
	r.parts[metric] = autoscale.Part{Value: value * 1000}
	return r
}

func (r *report) failing(metric autoscale.Metric, why string) *report {
	r.parts[metric] = autoscale.Part{Failure: why}
	return r
}

// perPod adds a value of a metric to each pod.
func (r *report) perPod(metric autoscale.Metric, value int64) *report {
	r.parts[metric] = autoscale.Part{Sums: autoscale.Sums{Measured: r.pods.Ready, Usage: value * 1000 * int64(r.pods.Ready)}}
	return r
}

// TestValuesOfClusters checks decisions by custom and external metrics, of which clusters may know a part, the whole, or nothing.
func TestValuesOfClusters(t *testing.T) {
	ten := resource.MustParse("10")
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &ten}
	queue, hits, requests := autoscale.Metric{Name: "queue", Selector: "name=jobs", External: true},
		autoscale.Metric{Name: "hits", Object: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "web"}}, autoscale.Metric{Name: "requests"}
	external := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "queue", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "jobs"}}}, Target: average}}
	object := autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "hits"}, DescribedObject: hits.Object, Target: average}}
	pods := autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: average}}
	both := func(m1, m2 *report) map[string]*report { return map[string]*report{"m1": m1, "m2": m2} }
	here := func() *report { return using(3, 50) }
	for _, c := range []struct {
		name    string
		metric  autoscalingv2.MetricSpec
		largest bool
		// binding has three replicas in each of two clusters if it is nil.
		binding *workv1alpha2.ResourceBinding
		reports map[string]*report
		want    int32
		says    string
		err     string
	}{
		{name: "the sum", metric: external, reports: both(here().valued(queue, 60), here().valued(queue, 30)), want: 9},
		{name: "the sum, down", metric: external, reports: both(here().valued(queue, 10), here().valued(queue, 10)), want: 2},
		{name: "the largest", metric: external, largest: true, reports: both(here().valued(queue, 40), here().valued(queue, 90)), want: 9},
		{name: "the largest is below zero", metric: external, largest: true, reports: both(here().valued(queue, -90), here().valued(queue, -40)), want: 1},
		{name: "with another selector", metric: external, reports: both(here().valued(autoscale.Metric{Name: "queue", External: true}, 90), here().valued(queue, 10)), want: 6, says: "m1 lacks the external metric queue: its agent has not asked"},
		{name: "one cluster fails, up", metric: external, reports: both(here().valued(queue, 90), here().failing(queue, "no answer")), want: 9, says: "m2 lacks the external metric queue: no answer, so the replicas are not lowered"},
		{name: "one cluster fails, not down", metric: external, reports: both(here().valued(queue, 10), here().failing(queue, "no answer")), want: 6, says: "m2 lacks"},
		{name: "all fail", metric: external, reports: both(here().failing(queue, "no answer"), here().failing(queue, "no metric")), want: 6, err: "m1 lacks the external metric queue: no answer, m2 lacks the external metric queue: no metric"},
		{name: "one is silent", metric: external, reports: map[string]*report{"m1": here().valued(queue, 10)}, want: 6, says: "no metrics from m2"},
		{name: "all are silent", metric: external, want: 6, err: "no cluster reports"},
		{name: "a cluster without pods and replicas is not missed", metric: external, binding: placed(policyv1alpha1.ReplicaSchedulingTypeDivided, 6, 6, 0), reports: both(here().valued(queue, 20), using(0, 0)), want: 2},
		{name: "a cluster whose pods have not come yet is missed", metric: external, reports: both(here().valued(queue, 20), using(0, 0)), want: 6, says: "m2 lacks"},
		{name: "a cluster that fails while it has no pods does not lower the sum", metric: external, reports: both(here().valued(queue, 20), using(0, 0).failing(queue, "no answer")), want: 6, says: "m2 lacks the external metric queue: no answer"},
		{name: "a value below zero lowers no sum", metric: external, reports: both(here().valued(queue, 60), here().valued(queue, -1000)), want: 6},
		{name: "usage below zero lowers no sum", metric: pods, reports: both(here().perPod(requests, 20), here().perPod(requests, -1000)), want: 6},
		{name: "no resource is measured in a cluster, not down", metric: cpu, reports: both(using(3, 5), here().failing(autoscale.Metric{Resource: corev1.ResourceCPU}, "no pod has a sample")), want: 6, says: "m2 lacks the cpu resource: no pod has a sample, so the replicas are not lowered"},
		{name: "a cluster says nothing of its pods", metric: cpu, reports: both(using(3, 5), &report{pods: autoscale.Pods{Total: 3, Ready: 3}, parts: map[autoscale.Metric]autoscale.Part{{Resource: corev1.ResourceCPU}: {}}}), want: 6, says: "m2 lacks the cpu resource: it says nothing of its pods"},
		{name: "pods that have failed in a cluster without replicas are not missed", metric: cpu, binding: placed(policyv1alpha1.ReplicaSchedulingTypeDivided, 6, 6, 0),
			reports: both(using(6, 25), &report{pods: autoscale.Pods{Total: 2}, parts: map[autoscale.Metric]autoscale.Part{{Resource: corev1.ResourceCPU}: {}}}), want: 3},
		{name: "an object, the sum", metric: object, reports: both(here().valued(hits, 60), here().valued(hits, 30)), want: 9},
		{name: "an object that one cluster lacks", metric: object, reports: both(here().valued(hits, 10), here().failing(hits, "not found")), want: 6, says: "m2 lacks the Service metric hits: not found"},
		{name: "pods", metric: pods, reports: both(here().perPod(requests, 20), here().perPod(requests, 10)), want: 9},
		{name: "pods, down", metric: pods, reports: both(here().perPod(requests, 5), here().perPod(requests, 1)), want: 2},
		{name: "pods that one cluster does not know, not down", metric: pods, reports: both(here().perPod(requests, 1), here().failing(requests, "no pod has a value")), want: 6, says: "m2 lacks the pods metric requests"},
		{name: "pods that one cluster does not know, up", metric: pods, reports: both(here().perPod(requests, 40), here().failing(requests, "no pod has a value")), want: 12, says: "m2 lacks"},
		{name: "pods that no cluster knows", metric: pods, reports: both(here().failing(requests, "a"), here().failing(requests, "b")), want: 6, err: "m2 lacks the pods metric requests: b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			metrics := []autoscalingv2.MetricSpec{c.metric}
			binding := c.binding
			if binding == nil {
				binding = placed(policyv1alpha1.ReplicaSchedulingTypeDivided, 6, 3, 3)
			}
			o := observe(evidence{binding: binding, reports: c.reports, largest: c.largest}, metrics)
			spec := &autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 100, Metrics: metrics, Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0)},
			}}
			d := autoscale.Decide(spec, o.workload, o.readings, &autoscale.History{}, autoscale.DefaultSettings, start)
			status := &autoscalingv2.HorizontalPodAutoscalerStatus{}
			decided(status, o, d, start)
			active := find(status, autoscalingv2.ScalingActive)
			if d.Replicas != c.want || active == nil || !strings.Contains(active.Message, c.says) || (c.says == "" && c.err == "") && strings.Contains(active.Message, ";") {
				t.Errorf("%d replicas, want %d; the condition is %v", d.Replicas, c.want, active)
			}
			if (d.Err == nil) != (c.err == "") || d.Err != nil && (!strings.Contains(d.Err.Error(), c.err) || active.Status != corev1.ConditionFalse) {
				t.Errorf("the error is %v, want %q; the condition is %v", d.Err, c.err, active)
			}
		})
	}
}
