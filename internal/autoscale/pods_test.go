package autoscale

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	resourcemetrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

var (
	now   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cpu   = Metric{Resource: corev1.ResourceCPU}
	bytes = Metric{Resource: corev1.ResourceMemory}
)

// pod returns a pod that has been ready for an hour and requests 100m of CPU.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	start := metav1.NewTime(now.Add(-time.Hour))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container("main", "100m")}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &start, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: start},
		}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func container(name, request string) corev1.Container {
	c := corev1.Container{Name: name}
	if request != "" {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}
	}
	return c
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

// started sets how long ago the pod started, and how long ago its readiness changed.
func started(start, changed time.Duration, ready corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.StartTime = &metav1.Time{Time: now.Add(-start)}
		p.Status.Conditions[1].Status, p.Status.Conditions[1].LastTransitionTime = ready, metav1.NewTime(now.Add(-changed))
	}
}

func TestSum(t *testing.T) {
	sample := Sample{Value: 70, Time: now.Add(-10 * time.Second), Window: 30 * time.Second}
	measured := Sums{Measured: 1, Usage: 70, Requests: 100, Time: sample.Time, Window: sample.Window}
	unready := Sums{Unready: 1, UnreadyRequests: 100}
	missing := Sums{Missing: []Missing{{100, 1}}}
	for _, c := range []struct {
		name      string
		pod       *corev1.Pod
		metric    Metric
		unsampled bool
		want      Sums
	}{
		{name: "ready", pod: pod(), metric: cpu, want: measured},
		{name: "without a sample", pod: pod(), metric: cpu, unsampled: true, want: missing},
		{name: "pending", pod: pod(phase(corev1.PodPending)), metric: cpu, want: unready},
		{name: "pending, without a sample", pod: pod(phase(corev1.PodPending)), metric: cpu, unsampled: true, want: unready},
		{name: "failed", pod: pod(phase(corev1.PodFailed)), metric: cpu},
		{name: "deleted", pod: pod(deleted), metric: cpu, unsampled: true},
		{name: "succeeded", pod: pod(phase(corev1.PodSucceeded)), metric: cpu, unsampled: true, want: missing},
		{name: "no start time", pod: pod(func(p *corev1.Pod) { p.Status.StartTime = nil }), metric: cpu, want: unready},
		{name: "no readiness", pod: pod(func(p *corev1.Pod) { p.Status.Conditions = nil }), metric: cpu, want: unready},
		{name: "starts, unready", pod: pod(started(time.Minute, time.Minute, corev1.ConditionFalse)), metric: cpu, want: unready},
		{name: "starts, unready, without a sample", pod: pod(started(time.Minute, time.Minute, corev1.ConditionFalse)), metric: cpu, unsampled: true, want: missing},
		{name: "starts, sample from before it was ready", pod: pod(started(time.Minute, 39*time.Second, corev1.ConditionTrue)), metric: cpu, want: unready},
		{name: "starts, sample since it was ready", pod: pod(started(time.Minute, 40*time.Second, corev1.ConditionTrue)), metric: cpu, want: measured},
		{name: "started, sample from before it was ready", pod: pod(started(6*time.Minute, 39*time.Second, corev1.ConditionTrue)), metric: cpu, want: measured},
		{name: "started, never ready", pod: pod(started(6*time.Minute, 6*time.Minute-29*time.Second, corev1.ConditionFalse)), metric: cpu, want: unready},
		{name: "started, no longer ready", pod: pod(started(6*time.Minute, 6*time.Minute-30*time.Second, corev1.ConditionFalse)), metric: cpu, want: measured},
		{name: "without a request", pod: pod(func(p *corev1.Pod) { p.Spec.Containers[0] = container("main", "") }), metric: cpu,
			want: Sums{Measured: 1, Usage: 70, WithoutRequest: 1, Time: sample.Time, Window: sample.Window}},
		{name: "deleted, without a request", pod: pod(deleted, func(p *corev1.Pod) { p.Spec.Containers[0] = container("main", "") }), metric: cpu, want: Sums{WithoutRequest: 1}},
		{name: "memory of an unready pod", pod: pod(started(time.Minute, time.Minute, corev1.ConditionFalse)), metric: bytes,
			want: Sums{Measured: 1, Usage: 70, WithoutRequest: 1, Time: sample.Time, Window: sample.Window}},
		{name: "a custom metric of an unready pod", pod: pod(started(time.Minute, time.Minute, corev1.ConditionFalse)), metric: Metric{Name: "requests"},
			want: Sums{Measured: 1, Usage: 70, Time: sample.Time, Window: sample.Window}},
	} {
		t.Run(c.name, func(t *testing.T) {
			samples := map[string]Sample{"gone": {Value: 1000}}
			if !c.unsampled {
				samples["pod"] = sample
			}
			if diff := cmp.Diff(c.want, Sum([]*corev1.Pod{c.pod}, c.metric, samples, DefaultStartup, now)); diff != "" {
				t.Errorf("wrong sums (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("proxy", "20m")
	sidecar.RestartPolicy = &always
	several := func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, container("log", "5m"))
		p.Spec.InitContainers = []corev1.Container{container("init", ""), sidecar}
	}
	whole := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	}
	for _, c := range []struct {
		name      string
		pod       *corev1.Pod
		container string
		want      int64
		wantError string
	}{
		{name: "one container", pod: pod(), want: 100},
		{name: "containers and sidecars", pod: pod(several), want: 125},
		{name: "one of several", pod: pod(several), container: "log", want: 5},
		{name: "a sidecar", pod: pod(several), container: "proxy", want: 20},
		{name: "no such container", pod: pod(several), container: "init", wantError: "pod pod has no container init"},
		{name: "one without", pod: pod(several, func(p *corev1.Pod) { p.Spec.Containers[1] = container("log", "") }), wantError: "container log of pod pod does not request cpu"},
		{name: "another without", pod: pod(several, func(p *corev1.Pod) { p.Spec.Containers[1] = container("log", "") }), container: "main", want: 100},
		{name: "the pod", pod: pod(several, whole), want: 1000},
		{name: "a container of a pod with a request", pod: pod(several, whole), container: "main", want: 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Request(c.pod, Metric{Resource: corev1.ResourceCPU, Container: c.container})
			if message(err) != c.wantError || got != c.want {
				t.Errorf("got %d and %q, want %d and %q", got, message(err), c.want, c.wantError)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSamples(t *testing.T) {
	used := func(name, quantity string) resourcemetrics.ContainerMetrics {
		usage := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
		if quantity != "" {
			usage[corev1.ResourceCPU] = resource.MustParse(quantity)
		}
		return resourcemetrics.ContainerMetrics{Name: name, Usage: usage}
	}
	metrics := func(name string, containers ...resourcemetrics.ContainerMetrics) resourcemetrics.PodMetrics {
		return resourcemetrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{Name: name}, Timestamp: metav1.NewTime(now), Window: metav1.Duration{Duration: time.Second}, Containers: containers}
	}
	pods := []resourcemetrics.PodMetrics{
		metrics("both", used("a", "10m"), used("b", "1500001n")), // a part of a thousandth is rounded up
		metrics("one", used("a", "10m"), used("b", "")),
		metrics("none"),
	}
	of := func(value int64) Sample { return Sample{Value: value, Time: now, Window: time.Second} }
	for metric, want := range map[Metric]map[string]Sample{
		cpu: {"both": of(12)},
		{Resource: corev1.ResourceCPU, Container: "a"}: {"both": of(10), "one": of(10)},
		{Resource: corev1.ResourceCPU, Container: "b"}: {"both": of(2)},
		bytes: {"both": of(2 << 20 * 1000), "one": of(2 << 20 * 1000)},
	} {
		if diff := cmp.Diff(want, ResourceSamples(pods, metric)); diff != "" {
			t.Errorf("wrong samples of %v (-want +got):\n%s", metric, diff)
		}
	}

	window := int64(30)
	value := func(name string, seconds *int64) custommetrics.MetricValue {
		return custommetrics.MetricValue{DescribedObject: corev1.ObjectReference{Name: name}, Timestamp: metav1.NewTime(now), WindowSeconds: seconds, Value: resource.MustParse("2500m")}
	}
	want := map[string]Sample{"a": {2500, now, 30 * time.Second}, "b": {2500, now, time.Minute}}
	if diff := cmp.Diff(want, CustomSamples([]custommetrics.MetricValue{value("a", &window), value("b", nil)})); diff != "" {
		t.Errorf("wrong samples (-want +got):\n%s", diff)
	}
}

func TestCount(t *testing.T) {
	pods := []*corev1.Pod{
		pod(), pod(deleted), pod(phase(corev1.PodPending)), pod(phase(corev1.PodFailed)),
		pod(started(time.Hour, time.Hour, corev1.ConditionFalse)), pod(func(p *corev1.Pod) { p.Status.Conditions = nil }),
	}
	if got, want := Count(pods), (Pods{Total: 6, Ready: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
