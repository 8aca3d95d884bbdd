package autoscale

import (
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// drawPod returns a pod in any state.
func drawPod(t *rapid.T, name string) *corev1.Pod {
	ago := func(label string) metav1.Time {
		return metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, label)) * time.Second))
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded}).Draw(t, "phase")
	if rapid.IntRange(0, 9).Draw(t, "deleted") == 0 {
		deleted(p)
	}
	if rapid.IntRange(0, 9).Draw(t, "has started") > 0 {
		start := ago("started")
		p.Status.StartTime = &start
	}
	if rapid.IntRange(0, 9).Draw(t, "has readiness") > 0 {
		status := rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}).Draw(t, "ready")
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: ago("changed")}}
	}
	request := resource.NewMilliQuantity(rapid.Int64Range(1, 300).Draw(t, "request"), resource.DecimalSI)
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *request}}}}
	return p
}

// drawPods returns pods in any state, and samples of most of them.
func drawPods(t *rapid.T) ([]*corev1.Pod, map[string]Sample) {
	pods, samples := []*corev1.Pod{}, map[string]Sample{}
	for i := range rapid.IntRange(0, 20).Draw(t, "pods") {
		p := drawPod(t, "pod-"+strconv.Itoa(i))
		pods = append(pods, p)
		if rapid.IntRange(0, 4).Draw(t, "sampled") > 0 {
			samples[p.Name] = Sample{rapid.Int64Range(0, 500).Draw(t, "usage"), now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "sample")) * time.Second), 30 * time.Second}
		}
	}
	return pods, samples
}

func drawSums(t *rapid.T, label string) Sums {
	n := func(what string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, label+" "+what) }
	s := Sums{Measured: int32(n("measured", 20)), Unready: int32(n("unready", 5))}
	s.Usage, s.Requests, s.UnreadyRequests = int64(s.Measured)*n("usage", 500), int64(s.Measured)*n("request", 300), int64(s.Unready)*n("unready request", 300)
	return s.Add(Unknown(int32(n("missing", 5)), n("missing request", 300))).Add(Unknown(int32(n("more missing", 5)), n("request of more missing", 300)))
}

func drawTolerance(t *rapid.T) tolerance {
	of := rapid.SampledFrom([]float64{0, 0.1, 0.5})
	return tolerance{of.Draw(t, "tolerance down"), of.Draw(t, "tolerance up")}
}

// TestSplit checks that it makes no difference how the pods are divided among clusters.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, samples := drawPods(t)
		metric := rapid.SampledFrom([]Metric{cpu, bytes, {Resource: corev1.ResourceCPU, Container: "main"}, {Name: "requests"}}).Draw(t, "metric")
		clusters := make([][]*corev1.Pod, rapid.IntRange(1, 5).Draw(t, "clusters"))
		for _, p := range pods {
			cluster := rapid.IntRange(0, len(clusters)-1).Draw(t, "cluster")
			clusters[cluster] = append(clusters[cluster], p)
		}
		var sums Sums
		var counts Pods
		for _, cluster := range clusters {
			sums, counts = sums.Add(Sum(cluster, metric, samples, DefaultStartup, now)), counts.Add(Count(cluster))
		}
		if want := Sum(pods, metric, samples, DefaultStartup, now); !reflect.DeepEqual(sums, want) {
			t.Errorf("got %+v, want %+v", sums, want)
		}
		if want := Count(pods); counts != want {
			t.Errorf("got %+v, want %+v", counts, want)
		}
	})
}

// TestAdd checks that sums can be added in any order, and do not change.
func TestAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawSums(t, "a"), drawSums(t, "b"), drawSums(t, "c")
		before := a.Add(Sums{})
		if x, y := a.Add(b).Add(c), a.Add(b.Add(c)); !reflect.DeepEqual(x, y) {
			t.Errorf("(a+b)+c = %+v, a+(b+c) = %+v", x, y)
		}
		if x, y := a.Add(b), b.Add(a); !reflect.DeepEqual(x, y) {
			t.Errorf("a+b = %+v, b+a = %+v", x, y)
		}
		if !reflect.DeepEqual(a, before) {
			t.Errorf("%+v became %+v", before, a)
		}
	})
}

// TestSumsAreBounded checks that numbers of pods that do not fit do not wrap around.
func TestSumsAreBounded(t *testing.T) {
	many := Sums{Measured: math.MaxInt32, Unready: math.MaxInt32, WithoutRequest: math.MaxInt32, Missing: []Missing{{1, math.MaxInt32}, {2, math.MaxInt32}}}
	sum := many.Add(many)
	missing, _ := sum.missing()
	if sum.Measured != math.MaxInt32 || sum.Unready != math.MaxInt32 || sum.WithoutRequest != math.MaxInt32 || sum.Missing[0].Pods != math.MaxInt32 || missing != math.MaxInt32 {
		t.Errorf("the sum is %+v", sum)
	}
	pods := Pods{Total: math.MaxInt32, Ready: math.MaxInt32, Unknown: math.MaxInt32}
	if got := pods.Add(pods); got != pods || got.Running() != math.MaxInt32 {
		t.Errorf("there are %+v", got)
	}
}

// TestMonotony checks that more usage never asks for fewer replicas.
func TestMonotony(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sums, tolerance := drawSums(t, "pods"), drawTolerance(t)
		sums.Unready, sums.UnreadyRequests, sums.Missing = 0, 0, nil
		sums.Measured, sums.Requests = max(1, sums.Measured), max(1, sums.Requests)
		current := sums.Measured // otherwise it is current in the tolerance, and the measured pods count outside of it
		more := sums
		more.Usage += rapid.Int64Range(0, 10_000).Draw(t, "more")
		target := rapid.Int32Range(1, 200).Draw(t, "target")
		low, _, _, err := utilizationReplicas(sums, target, current, tolerance)
		high, _, _, moreErr := utilizationReplicas(more, target, current, tolerance)
		if err != nil || moreErr != nil || high < low {
			t.Errorf("%d replicas (%v), with more usage %d (%v)", low, err, high, moreErr)
		}
		low, _, err = averageReplicas(sums, int64(target), current, tolerance)
		high, _, moreErr = averageReplicas(more, int64(target), current, tolerance)
		if err != nil || moreErr != nil || high < low {
			t.Errorf("%d replicas (%v), with more usage %d (%v)", low, err, high, moreErr)
		}
	})
}

// TestSilence checks that a cluster that stops to report never causes a scale-down: replicas are only lowered to what is
// enough if its pods use all that they request (the target, for a value).
func TestSilence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		others, tolerance := drawSums(t, "others"), drawTolerance(t)
		others.Unready, others.UnreadyRequests = 0, 0
		others.Measured, others.Requests = max(1, others.Measured), max(1, others.Requests)
		pods, request := rapid.Int32Range(1, 10).Draw(t, "pods"), rapid.Int64Range(1, 300).Draw(t, "request")
		target := rapid.Int32Range(1, 200).Draw(t, "target")
		missing, _ := others.missing()
		current := others.Measured + missing + pods

		reports := Sums{Measured: pods, Usage: rapid.Int64Range(0, int64(pods)*request).Draw(t, "usage"), Requests: int64(pods) * request}
		silent, _, _, err := utilizationReplicas(others.Add(Unknown(pods, request)), target, current, tolerance)
		full, _, _, fullErr := utilizationReplicas(others.Add(reports), target, current, tolerance)
		if err != nil || fullErr != nil || silent < min(current, full) {
			t.Errorf("of %d replicas, utilization keeps %d (%v), and %d (%v) if the cluster reports", current, silent, err, full, fullErr)
		}

		reports.Usage = rapid.Int64Range(0, int64(pods)*int64(target)).Draw(t, "value")
		silent, _, err = averageReplicas(others.Add(Unknown(pods, 0)), int64(target), current, tolerance)
		full, _, fullErr = averageReplicas(others.Add(reports), int64(target), current, tolerance)
		if err != nil || fullErr != nil || silent < min(current, full) {
			t.Errorf("of %d replicas, the average keeps %d (%v), and %d (%v) if the cluster reports", current, silent, err, full, fullErr)
		}

		ready := rapid.Int32Range(0, pods).Draw(t, "ready")
		value := rapid.Int64Range(0, 1000).Draw(t, "value of an object")
		known := Pods{Total: others.Measured, Ready: others.Measured}
		silent, err = valueReplicas(value, int64(target), known.Add(Pods{Unknown: pods}), current, tolerance)
		full, fullErr = valueReplicas(value, int64(target), known.Add(Pods{Total: pods, Ready: ready}), current, tolerance)
		if err != nil || fullErr != nil || silent < min(current, full) {
			t.Errorf("of %d replicas, the value keeps %d (%v), and %d (%v) if the cluster reports", current, silent, err, full, fullErr)
		}
	})
}

// TestBounds checks that any decisions stay within the bounds, and history within the windows.
func TestBounds(t *testing.T) {
	rules := func(t *rapid.T, label string) *autoscalingv2.HPAScalingRules {
		if rapid.Bool().Draw(t, label+" by default") {
			return nil
		}
		r := &autoscalingv2.HPAScalingRules{}
		r.StabilizationWindowSeconds = ptr(rapid.Int32Range(0, 120).Draw(t, label+" window"))
		r.SelectPolicy = ptr(rapid.SampledFrom([]autoscalingv2.ScalingPolicySelect{
			autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect}).Draw(t, label+" choice"))
		for range rapid.IntRange(0, 3).Draw(t, label+" policies") {
			r.Policies = append(r.Policies, autoscalingv2.HPAScalingPolicy{
				Type:          rapid.SampledFrom([]autoscalingv2.HPAScalingPolicyType{autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy}).Draw(t, label+" type"),
				Value:         rapid.Int32Range(1, 200).Draw(t, label+" value"),
				PeriodSeconds: rapid.Int32Range(1, 120).Draw(t, label+" period"),
			})
		}
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		lowest := rapid.Int32Range(1, 10).Draw(t, "minimum")
		spec := autoscaler(lowest, lowest+rapid.Int32Range(0, 90).Draw(t, "range"), cpuMetric(rapid.Int32Range(1, 200).Draw(t, "target")))
		if rapid.Bool().Draw(t, "has a behavior") {
			spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(t, "up"), ScaleDown: rules(t, "down")}
		}
		history, at, current := &History{}, now, rapid.Int32Range(1, 120).Draw(t, "current")
		for range 60 {
			at = at.Add(15 * time.Second)
			d := Decide(spec, running(current), []Reading{{Sums: drawSums(t, "pods")}}, history, Settings{Tolerance: 0.1, Stabilization: time.Minute}, at)
			if d.Replicas < lowest || d.Replicas > spec.MaxReplicas {
				t.Fatalf("%d replicas are not from %d to %d", d.Replicas, lowest, spec.MaxReplicas)
			}
			if (d.Reason == "") != (d.Replicas == current) {
				t.Fatalf("from %d to %d, reason %q", current, d.Replicas, d.Reason)
			}
			if d.Err != nil && d.Replicas < min(current, spec.MaxReplicas) {
				t.Fatalf("from %d to %d, although %v", current, d.Replicas, d.Err)
			}
			if d.Replicas != current {
				history.Scaled(spec.Behavior, current, d.Replicas, at)
				current = d.Replicas
			}
		}
		if most := max(len(history.recommended), len(history.up), len(history.down)); most > 23 { // of the first step, and of the last 300 or 120 seconds
			t.Fatalf("%d events are kept", most)
		}
	})
}

// TestFinite checks that no numbers give a result that wraps around.
func TestFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Just(int64(math.MaxInt64)), rapid.Int64Min(1))
		sums := Sums{Measured: rapid.Int32Range(1, 1<<20).Draw(t, "measured"), Usage: amount.Draw(t, "usage"), Requests: amount.Draw(t, "requests")}
		sums = sums.Add(Unknown(rapid.Int32Range(0, 1<<20).Draw(t, "missing"), amount.Draw(t, "request")))
		sums = sums.Add(Sums{Unready: rapid.Int32Range(0, 1<<20).Draw(t, "unready"), UnreadyRequests: amount.Draw(t, "unready requests")})
		target := rapid.Int32Min(1).Draw(t, "target")
		replicas, utilization, average, err := utilizationReplicas(sums, target, 1, tenth)
		if err != nil || replicas < 0 || utilization < 0 || average < 0 {
			t.Errorf("got %d, %d, %d, %v", replicas, utilization, average, err)
		}
		if replicas, average, err = averageReplicas(sums, amount.Draw(t, "target value"), 1, tenth); err != nil || replicas < 0 || average < 0 {
			t.Errorf("got %d, %d, %v", replicas, average, err)
		}
	})
}
