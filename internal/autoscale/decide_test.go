package autoscale

import (
	"errors"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ptr[T any](value T) *T { return &value }

func quantity(value string) *resource.Quantity { return ptr(resource.MustParse(value)) }

// cpuMetric asks for a utilization.
func cpuMetric(target int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &target}}}
}

func autoscaler(lowest, highest int32, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscalerSpec {
	return &autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &lowest, MaxReplicas: highest, Metrics: metrics}
}

func running(replicas int32) Workload {
	return Workload{Replicas: replicas, Running: replicas, Pods: Pods{Total: replicas, Ready: replicas}}
}

// conditions returns type=status/reason of all conditions.
func (d Decision) conditions() string {
	var all []string
	for _, c := range d.Conditions {
		all = append(all, string(c.Type)+"="+string(c.Status)+"/"+c.Reason)
	}
	return strings.Join(all, " ")
}

// asking is a reading by which a target of 100 % needs these replicas.
func asking(current, replicas int32) Reading {
	return Reading{Sums: Sums{Measured: current, Usage: int64(replicas) * 1000, Requests: int64(current) * 1000}}
}

func TestDecide(t *testing.T) {
	failed := Reading{Err: errors.New("no answer")}
	for _, c := range []struct {
		name       string
		spec       *autoscalingv2.HorizontalPodAutoscalerSpec
		current    int32
		readings   []Reading
		want       int32
		reason     string
		conditions string
		err        string
	}{
		{name: "up", spec: autoscaler(1, 10, cpuMetric(100)), current: 4, readings: []Reading{asking(4, 6)}, want: 6,
			reason:     "cpu resource utilization (percentage of request) above target",
			conditions: "ScalingActive=True/ValidMetricFound AbleToScale=True/ReadyForNewScale ScalingLimited=False/DesiredWithinRange"},
		{name: "up to the maximum", spec: autoscaler(1, 5, cpuMetric(100)), current: 4, readings: []Reading{asking(4, 6)}, want: 5,
			reason:     "cpu resource utilization (percentage of request) above target",
			conditions: "ScalingActive=True/ValidMetricFound AbleToScale=True/ReadyForNewScale ScalingLimited=True/TooManyReplicas"},
		{name: "up to twice as many", spec: autoscaler(1, 50, cpuMetric(100)), current: 4, readings: []Reading{asking(4, 16)}, want: 8,
			reason:     "cpu resource utilization (percentage of request) above target",
			conditions: "ScalingActive=True/ValidMetricFound AbleToScale=True/ReadyForNewScale ScalingLimited=True/ScaleUpLimit"},
		{name: "up from one to four", spec: autoscaler(1, 50, cpuMetric(100)), current: 1, readings: []Reading{asking(1, 16)}, want: 4,
			reason:     "cpu resource utilization (percentage of request) above target",
			conditions: "ScalingActive=True/ValidMetricFound AbleToScale=True/ReadyForNewScale ScalingLimited=True/ScaleUpLimit"},
		{name: "not down at once", spec: autoscaler(1, 10, cpuMetric(100)), current: 4, readings: []Reading{asking(4, 2)}, want: 4,
			conditions: "ScalingActive=True/ValidMetricFound AbleToScale=True/ScaleDownStabilized ScalingLimited=False/DesiredWithinRange"},
		{name: "zero replicas", spec: autoscaler(1, 10, cpuMetric(100)), readings: []Reading{failed}, conditions: "ScalingActive=False/ScalingDisabled"},
		{name: "above the maximum", spec: autoscaler(1, 10, cpuMetric(100)), current: 40, readings: []Reading{failed}, want: 10, reason: "Current number of replicas above Spec.MaxReplicas"},
		{name: "below the minimum", spec: autoscaler(3, 10, cpuMetric(100)), current: 2, readings: []Reading{failed}, want: 3, reason: "Current number of replicas below Spec.MinReplicas"},
		{name: "the largest", spec: autoscaler(1, 10, cpuMetric(100), cpuMetric(50), cpuMetric(100)), current: 4, readings: []Reading{asking(4, 6), asking(4, 4), asking(4, 7)}, want: 8,
			reason:     "cpu resource utilization (percentage of request) above target",
			conditions: "ScalingActive=True/ValidMetricFound AbleToScale=True/ReadyForNewScale ScalingLimited=False/DesiredWithinRange"},
		{name: "all fail", spec: autoscaler(1, 10, cpuMetric(100)), current: 4, readings: []Reading{failed}, want: 4,
			conditions: "ScalingActive=False/FailedGetResourceMetric", err: "1 of 1 metrics failed, the first: no answer"},
		{name: "one fails, another asks for more", spec: autoscaler(1, 10, cpuMetric(100), cpuMetric(100)), current: 4, readings: []Reading{failed, asking(4, 6)}, want: 6,
			reason:     "cpu resource utilization (percentage of request) above target",
			conditions: "ScalingActive=True/ValidMetricFound AbleToScale=True/ReadyForNewScale ScalingLimited=False/DesiredWithinRange",
			err:        "1 of 2 metrics failed, the first: no answer"},
		{name: "one fails, another asks for less", spec: autoscaler(1, 10, cpuMetric(100), cpuMetric(100)), current: 4, readings: []Reading{asking(4, 2), failed}, want: 4,
			conditions: "ScalingActive=False/FailedGetResourceMetric", err: "1 of 2 metrics failed, the first: no answer"},
		{name: "no such type", spec: autoscaler(1, 10, autoscalingv2.MetricSpec{Type: "Moon"}), current: 4, readings: []Reading{{}}, want: 4,
			conditions: "ScalingActive=False/InvalidMetricSourceType", err: `1 of 1 metrics failed, the first: a metric of type "Moon" has no source of this type`},
		{name: "no metrics", spec: autoscaler(1, 10), current: 4, want: 4, err: "the autoscaler has no metrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.spec, running(c.current), c.readings, &History{}, DefaultSettings, now)
			if d.Replicas != c.want || d.Reason != c.reason || d.conditions() != c.conditions || message(d.Err) != c.err {
				t.Errorf("got %d (%s)\n%s\n%v\nwant %d (%s)\n%s\n%s", d.Replicas, d.Reason, d.conditions(), d.Err, c.want, c.reason, c.conditions, c.err)
			}
		})
	}
}

// TestMetrics decides by each type of metric and target.
func TestMetrics(t *testing.T) {
	sums := Reading{Sums: Sums{Measured: 4, Usage: 4 << 20 * 1000, Requests: 8 << 20 * 1000}}
	averageValue := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity("2")}
	value := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: quantity("2")}
	object := autoscalingv2.CrossVersionObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "main"}
	requests := autoscalingv2.MetricIdentifier{Name: "requests"}
	for _, c := range []struct {
		name    string
		spec    autoscalingv2.MetricSpec
		reading Reading
		want    int32
		current string
		err     string
	}{
		{name: "resource value", reading: sums, want: 8, current: "1Mi",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{AverageValue: quantity("512Ki")}}}},
		{name: "container utilization", reading: sums, want: 8, current: "50% 1Mi",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
				Name: corev1.ResourceMemory, Container: "main", Target: autoscalingv2.MetricTarget{AverageUtilization: ptr[int32](25)}}}},
		{name: "resource without a target", reading: sums, err: "cpu resource: a resource metric needs a target averageUtilization or averageValue",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU}}},
		{name: "pods", reading: Reading{Sums: Sums{Measured: 4, Usage: 12000}}, want: 6, current: "3",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: requests, Target: averageValue}}},
		{name: "object", reading: Reading{Value: 3000}, want: 6, current: "3",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{DescribedObject: object, Metric: requests, Target: value}}},
		{name: "object per pod", reading: Reading{Value: 12000}, want: 6, current: "3",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{DescribedObject: object, Metric: requests, Target: averageValue}}},
		{name: "external", reading: Reading{Value: 3000}, want: 6, current: "3",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: requests, Target: value}}},
		{name: "external per pod", reading: Reading{Value: 12000}, want: 6, current: "3",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: requests, Target: averageValue}}},
		{name: "external without a target", err: "external metric requests: the metric needs a target value or averageValue",
			spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: requests}}},
		{name: "no source", err: `a metric of type "External" has no source of this type`, spec: autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := propose(c.spec, running(4), c.reading, tenth)
			if message(err) != c.err {
				t.Fatalf("got %v, want %s", err, c.err)
			}
			if err == nil && (p.replicas != c.want || current(p.status) != c.current || p.status.Type != c.spec.Type) {
				t.Errorf("got %d and %s, want %d and %s", p.replicas, current(p.status), c.want, c.current)
			}
		})
	}
}

// current returns the current values in a status.
func current(status autoscalingv2.MetricStatus) string {
	var values autoscalingv2.MetricValueStatus
	switch {
	case status.Resource != nil:
		values = status.Resource.Current
	case status.ContainerResource != nil:
		values = status.ContainerResource.Current
	case status.Pods != nil:
		values = status.Pods.Current
	case status.Object != nil:
		values = status.Object.Current
	case status.External != nil:
		values = status.External.Current
	}
	var all []string
	if values.AverageUtilization != nil {
		all = append(all, resource.NewQuantity(int64(*values.AverageUtilization), resource.DecimalSI).String()+"%")
	}
	for _, q := range []*resource.Quantity{values.AverageValue, values.Value} {
		if q != nil {
			all = append(all, q.String())
		}
	}
	return strings.Join(all, " ")
}

func TestMetricOf(t *testing.T) {
	selected := autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{
		Name: "requests", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}}}}}
	if got, ok, err := MetricOf(selected); got != (Metric{Name: "requests", Selector: "a=1,b=2"}) || !ok || err != nil {
		t.Errorf("got %+v, %t, %v", got, ok, err)
	}
	selected.Pods.Metric.Selector.MatchLabels["a"] = "not a value!"
	if _, _, err := MetricOf(selected); err == nil || !strings.HasPrefix(err.Error(), "selector of metric requests: ") {
		t.Errorf("got %v", err)
	}
	external := autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{}}
	if _, ok, err := MetricOf(external); ok || err != nil {
		t.Errorf("an external metric is of pods, or invalid: %v", err)
	}
	if _, _, err := MetricOf(autoscalingv2.MetricSpec{}); message(err) != "a metric has no type" {
		t.Errorf("got %v", err)
	}
}

func TestTolerance(t *testing.T) {
	behavior := &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   &autoscalingv2.HPAScalingRules{Tolerance: quantity("500m")},
		ScaleDown: &autoscalingv2.HPAScalingRules{Tolerance: quantity("0")},
	}
	for usage, want := range map[int32]int32{7: 7, 6: 4, 4: 4, 3: 3} { // half more is tolerated
		spec := autoscaler(1, 10, cpuMetric(100))
		spec.Behavior = behavior
		spec.Behavior.ScaleDown.StabilizationWindowSeconds = ptr[int32](0)
		if d := Decide(spec, running(4), []Reading{asking(4, usage)}, &History{}, DefaultSettings, now); d.Replicas != want {
			t.Errorf("a usage of %d gives %d replicas, want %d", usage, d.Replicas, want)
		}
	}
}

// step is a decision at a time, in seconds after the first.
type step struct {
	at         int
	asks, want int32
	reason     string // of the condition that limits it
}

func TestBehavior(t *testing.T) {
	policy := func(kind autoscalingv2.HPAScalingPolicyType, value, period int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: kind, Value: value, PeriodSeconds: period}
	}
	rules := func(window int32, choice autoscalingv2.ScalingPolicySelect, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: &choice, Policies: policies}
	}
	const pods, percent = autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy
	const most, fewest, disabled = autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect
	now := rules(0, most, policy(percent, 100, 15))
	for _, c := range []struct {
		name     string
		behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
		current  int32
		steps    []step
	}{
		{name: "none", current: 10, steps: []step{
			{0, 4, 10, "ScaleDownStabilized"}, {299, 6, 10, "ScaleDownStabilized"}, {301, 4, 6, "ScaleDownStabilized"}, {600, 4, 4, ""}, {615, 40, 8, "ScaleUpLimit"}, {630, 1, 16, "ScaleUpLimit"},
		}},
		{name: "defaults", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{}, current: 10, steps: []step{
			{0, 4, 10, "ScaleDownStabilized"}, {299, 6, 10, "ScaleDownStabilized"}, {301, 4, 6, "ScaleDownStabilized"},
			// There were ten replicas 15 seconds ago.
			{302, 40, 20, "ScaleUpLimit"}, {310, 40, 20, "ScaleUpLimit"}, {317, 80, 40, "ScaleUpLimit"}, {332, 200, 80, "ScaleUpLimit"}, {347, 200, 100, "TooManyReplicas"},
		}},
		{name: "pods and percent, the larger", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(0, most, policy(pods, 3, 60), policy(percent, 50, 60)), ScaleDown: now}, current: 4, steps: []step{
			{0, 100, 7, "ScaleUpLimit"}, {30, 100, 7, "ScaleUpLimit"}, {60, 100, 11, "ScaleUpLimit"}, {61, 8, 8, ""}, {62, 100, 11, "ScaleUpLimit"},
		}},
		{name: "pods and percent, the smaller", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(0, fewest, policy(pods, 3, 60), policy(percent, 50, 60)), ScaleDown: now}, current: 4, steps: []step{
			{0, 100, 6, "ScaleUpLimit"}, {60, 100, 9, "ScaleUpLimit"}, {120, 100, 12, "ScaleUpLimit"},
		}},
		{name: "no scale-down", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: rules(0, disabled)}, current: 4, steps: []step{
			{0, 1, 4, "ScaleDownLimit"}, {600, 2, 4, "ScaleDownLimit"}, {601, 5, 5, ""},
		}},
		{name: "no scale-up", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(0, disabled), ScaleDown: now}, current: 4, steps: []step{
			{0, 10, 4, "ScaleUpLimit"}, {1, 3, 3, ""},
		}},
		{name: "slowly down", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: rules(0, fewest, policy(pods, 4, 60), policy(percent, 10, 60))}, current: 80, steps: []step{
			{0, 10, 76, "ScaleDownLimit"}, {30, 10, 76, "ScaleDownLimit"}, {60, 10, 72, "ScaleDownLimit"},
			{120, 10, 68, "ScaleDownLimit"}, {180, 61, 64, "ScaleDownLimit"}, {240, 5, 60, "ScaleDownLimit"},
		}},
		{name: "quickly down", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: rules(0, most, policy(pods, 4, 60), policy(percent, 10, 60))}, current: 80, steps: []step{
			{0, 10, 72, "ScaleDownLimit"}, {60, 10, 64, "ScaleDownLimit"},
		}},
		{name: "to the minimum", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: now}, current: 4, steps: []step{{0, 0, 1, "TooFewReplicas"}}},
		{name: "stable up", behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(60, most, policy(percent, 1000, 15)), ScaleDown: now}, current: 4, steps: []step{
			{0, 10, 4, "ScaleUpStabilized"}, {30, 8, 4, "ScaleUpStabilized"}, {60, 10, 8, "ScaleUpStabilized"}, {61, 2, 2, ""}, {62, 9, 2, "ScaleUpStabilized"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) { follow(t, c.behavior, c.current, c.steps) })
	}
}

// follow makes decisions one after the other, and checks each.
func follow(t *testing.T, behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, current int32, steps []step) {
	t.Helper()
	spec := autoscaler(1, 100, cpuMetric(100))
	spec.Behavior = behavior
	history := &History{}
	for _, s := range steps {
		at := now.Add(time.Duration(s.at) * time.Second)
		d := Decide(spec, running(current), []Reading{asking(current, s.asks)}, history, DefaultSettings, at)
		if d.Replicas != s.want || (s.reason != "" && !strings.Contains(d.conditions(), "/"+s.reason)) {
			t.Fatalf("after %d s, metrics ask for %d of %d: got %d (%s), want %d (%s)", s.at, s.asks, current, d.Replicas, d.conditions(), s.want, s.reason)
		}
		if d.Replicas != current {
			history.Scaled(behavior, current, d.Replicas, at)
			current = d.Replicas
		}
	}
}
