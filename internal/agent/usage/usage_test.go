package usage

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// pod returns a pod with a container and a sidecar, which has been ready for an hour.
func pod(name string, labels map[string]string) *corev1.Pod {
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, Labels: labels, Annotations: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			NodeName:       "node",
			Containers:     []corev1.Container{{Name: "main", Image: "i", Resources: requests}},
			InitContainers: []corev1.Container{{Name: "init", Resources: requests}, {Name: "sidecar", Resources: requests, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: now.Add(-time.Hour)},
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}},
		},
	}
}

func used(pods ...string) map[types.NamespacedName]v1beta1.PodMetrics {
	all := map[types.NamespacedName]v1beta1.PodMetrics{}
	for _, name := range pods {
		usage := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
		all[types.NamespacedName{Namespace: "demo", Name: name}] = v1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name}, Timestamp: metav1.NewTime(now), Window: metav1.Duration{Duration: 15 * time.Second},
			Containers: []v1beta1.ContainerMetrics{{Name: "main", Usage: usage}, {Name: "sidecar", Usage: usage}},
		}
	}
	return all
}

// TestSlim checks that the sums of what is kept of pods are those of the pods.
func TestSlim(t *testing.T) {
	deleted, pending, unready, level := pod("deleted", nil), pod("pending", nil), pod("unready", nil), pod("level", nil)
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	pending.Status.Phase = corev1.PodPending
	unready.Status.Conditions[1].Status, unready.Status.Conditions[1].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now.Add(-time.Hour+time.Second))
	level.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}
	whole := []*corev1.Pod{pod("a", nil), pod("b", nil), deleted, pending, unready, level}
	var kept []*corev1.Pod
	for _, p := range whole {
		object, err := slim(p)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, object.(*corev1.Pod))
	}
	if kept[0].Spec.NodeName != "" || kept[0].Annotations != nil || kept[0].Spec.Containers[0].Image != "" {
		t.Errorf("kept is %v", kept[0])
	}
	samples := used("a", "deleted", "pending", "unready", "level")
	w := workload{key: workloadKey{namespace: "demo", name: "web"}}
	more := []autoscale.Metric{{Resource: corev1.ResourceCPU, Container: "main"}, {Resource: corev1.ResourceMemory, Container: "other"}}
	want, got := sum(summing{w, whole, samples, nil, now}, more), sum(summing{w, kept, samples, nil, now}, more)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	cpu := got.Metrics[0]
	if got.Pods != (metricsv1alpha1.PodCounts{Total: 6, Ready: 4}) || cpu.Measured.Pods != 2 || cpu.Measured.Usage.String() != "200m" || cpu.Unready.Pods != 2 || len(cpu.Missing) != 1 {
		t.Errorf("the sums are %+v of %+v", cpu, got.Pods)
	}
}

// TestNoSamples checks that a cluster that measures nothing of a workload says so, if there are pods that should be measured.
func TestNoSamples(t *testing.T) {
	w := workload{key: workloadKey{namespace: "demo", name: "web"}}
	pending := pod("pending", nil)
	pending.Status.Phase = corev1.PodPending
	for _, c := range []struct {
		name  string
		pods  []*corev1.Pod
		used  map[types.NamespacedName]v1beta1.PodMetrics
		fails bool
	}{
		{"no metrics", []*corev1.Pod{pod("a", nil), pod("b", nil)}, nil, true},
		{"those of other pods", []*corev1.Pod{pod("a", nil), pending}, used("gone"), true},
		{"those of one pod", []*corev1.Pod{pod("a", nil), pod("b", nil)}, used("a"), false},
		{"no pod that runs", []*corev1.Pod{pending}, nil, false},
		{"no pod", nil, nil, false},
	} {
		for _, part := range sum(summing{w, c.pods, c.used, nil, now}, nil).Metrics {
			if (part.Failure != "") != c.fails {
				t.Errorf("%s: %+v", c.name, part)
			}
		}
	}
}

func TestSelected(t *testing.T) {
	index := newPodIndex([]any{
		pod("a", map[string]string{"app": "web", "tier": "front"}), pod("b", map[string]string{"app": "web"}), pod("c", map[string]string{"app": "db"}), pod("d", nil),
	})
	for _, test := range []struct {
		namespace string
		selector  metav1.LabelSelector
		want      string
	}{
		{"demo", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, "[a b]"},
		{"demo", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "front"}}, "[a]"},
		{"demo", metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}, "[]"},
		{"demo", metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}, "[a b c]"},
		{"other", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, "[]"},
		{"demo", metav1.LabelSelector{}, "[]"},
	} {
		var got []string
		for _, p := range index.selected(test.namespace, &test.selector) {
			got = append(got, p.Name)
		}
		if fmt.Sprint(got) != test.want {
			t.Errorf("%s in %s: got %v, want %s", metav1.FormatLabelSelector(&test.selector), test.namespace, got, test.want)
		}
	}
}

func TestWishes(t *testing.T) {
	web := metricsv1alpha1.NamespacedWorkload{Namespace: "demo", WorkloadReference: metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1beta1", Kind: "Deployment", Name: "web"}}
	wishes := wishesOf(&metricsv1alpha1.WantedMetrics{Workloads: []metricsv1alpha1.WantedWorkload{{NamespacedWorkload: web, Metrics: []metricsv1alpha1.WantedMetric{
		{Resource: corev1.ResourceCPU}, {Resource: corev1.ResourceCPU, Container: "main"}, {Resource: corev1.ResourceCPU, Container: "main"}, {Name: "requests"},
		{Name: "queue", External: true}, {Name: "hits", Selector: strings.Repeat("a,", autoscale.MostIdentity/2)},
	}}}})
	key := workloadKey{schema.GroupKind{Group: "apps", Kind: "Deployment"}, "demo", "web"}
	if got := fmt.Sprint(wishes); got != fmt.Sprint(map[workloadKey][]autoscale.Metric{key: {{Resource: corev1.ResourceCPU, Container: "main"}, {Name: "requests"}, {Name: "queue", External: true}}}) {
		t.Errorf("got %s", got)
	}
	many := metricsv1alpha1.WantedWorkload{NamespacedWorkload: web}
	for i := range 2 * autoscale.MostMetrics {
		many.Metrics = append(many.Metrics, metricsv1alpha1.WantedMetric{Name: fmt.Sprintf("metric-%d", i)})
	}
	if got := wishesOf(&metricsv1alpha1.WantedMetrics{Workloads: []metricsv1alpha1.WantedWorkload{many, many}})[key]; len(got) != autoscale.MostMetrics {
		t.Errorf("%d metrics of a workload are asked for", len(got))
	}
}

// TestSizeIsBounded checks that the metrics that autoscalers want of a workload cannot make its item larger than cluster-gateways take, and that failures are
// short. The usual metrics are always there.
func TestSizeIsBounded(t *testing.T) {
	w := workload{key: workloadKey{namespace: "demo", name: "web"}}
	var more []autoscale.Metric
	answers := map[question]answer{}
	for i := range 100 {
		metric := autoscale.Metric{Name: fmt.Sprintf("metric-%d", i), External: true}
		more = append(more, metric)
		q, _ := questionOf(w, metric)
		answers[q] = answer{err: errors.New(strings.Repeat("ä", 2*mostText))}
	}
	got := sum(summing{w, nil, nil, answers, now}, more)
	if len(got.Metrics) < 12 || len(got.Metrics) > 40 || size(got) > mostBytes+1<<10 || got.Metrics[0].Resource != corev1.ResourceCPU || got.Metrics[1].Resource != corev1.ResourceMemory {
		t.Errorf("%d metrics of %d bytes", len(got.Metrics), size(got))
	}
	if text := got.Metrics[2].Failure; len(text) > mostText+len("…") || !utf8.ValidString(text) {
		t.Errorf("the failure has %d bytes", len(text))
	}
}

// TestNamesArePartsOfPaths checks that a name cannot lead the agent to another path of the API server, where it may have all rights.
func TestNamesArePartsOfPaths(t *testing.T) {
	for _, c := range []struct {
		metric autoscale.Metric
		bad    bool
	}{
		{autoscale.Metric{Name: "requests"}, false},
		{autoscale.Metric{Name: "requests", Object: autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "web"}}, false},
		{autoscale.Metric{Name: "..", External: true}, true},
		{autoscale.Metric{Name: "../../../../api/v1/secrets"}, true},
		{autoscale.Metric{Name: "", External: true}, true},
		{autoscale.Metric{Name: "requests", Object: autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "../x"}}, true},
		{autoscale.Metric{Name: "requests", Object: autoscalingv2.CrossVersionObjectReference{Kind: "Service"}}, true},
		{autoscale.Metric{Name: "a%2fb"}, true},
	} {
		if err := (question{Metric: c.metric}).check(); (err != nil) != c.bad {
			t.Errorf("%+v: %v", c.metric, err)
		}
	}
}
