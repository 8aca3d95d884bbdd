package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

var now = time.Unix(1_000_000, 0)

func placed(clusters ...string) *workv1alpha2.ResourceBinding {
	binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	for _, cluster := range clusters {
		binding.Spec.Clusters = append(binding.Spec.Clusters, workv1alpha2.TargetCluster{Name: cluster, Replicas: 2})
	}
	binding.Status.SchedulerObservedGeneration = 3
	return binding
}

func TestEvict(t *testing.T) {
	binding := placed("b", "a")
	binding.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{{FromCluster: "a", Reason: "Old"}, {FromCluster: "c"}}
	if Evict(binding, Eviction{Cluster: "elsewhere"}, now) {
		t.Error("evicted from a cluster that it is not in")
	}
	e := Eviction{Cluster: "a", Reason: names.EvictionReasonTaintUntolerated, Producer: names.EvictionProducerTaintManager, Message: strings.Repeat("m", 2000)}
	if !Evict(binding, e, now) {
		t.Fatal("not evicted")
	}
	if len(binding.Spec.Clusters) != 1 || binding.Spec.Clusters[0].Name != "b" {
		t.Errorf("clusters = %v", binding.Spec.Clusters)
	}
	if len(binding.Spec.GracefulEvictionTasks) != 2 {
		t.Fatalf("tasks = %+v", binding.Spec.GracefulEvictionTasks)
	}
	task := binding.Spec.GracefulEvictionTasks[1]
	if task.FromCluster != "a" || task.PurgeMode != policyv1alpha1.PurgeModeGracefully || *task.Replicas != 2 || task.Reason != e.Reason ||
		task.Producer != e.Producer || len(task.Message) > 1024 || !task.CreationTimestamp.Time.Equal(now) ||
		!slices.Equal(task.ClustersBeforeFailover, []string{"a", "b"}) || task.SuppressDeletion != nil {
		t.Errorf("task = %+v", task)
	}
	if binding.Annotations[names.EvictedFromAnnotation] != "" {
		t.Error("a cluster to fail back to is recorded without the annotation")
	}

	binding = placed("a", "b")
	binding.Annotations = map[string]string{names.FailBackAnnotation: "1m"}
	Evict(binding, Eviction{Cluster: "b", PurgeMode: policyv1alpha1.PurgeModeNever, GracePeriodSeconds: ptr.To[int32](5)}, now)
	Evict(binding, Eviction{Cluster: "a", PurgeMode: policyv1alpha1.PurgeModeDirectly}, now)
	if task := binding.Spec.GracefulEvictionTasks[0]; !*task.SuppressDeletion || task.GracePeriodSeconds != nil {
		t.Errorf("task for a copy that is never removed = %+v", task)
	}
	if !slices.Equal(Left(binding), []string{"a", "b"}) {
		t.Errorf("Left() = %v", Left(binding))
	}
}

func TestPreserve(t *testing.T) {
	binding := placed("a")
	binding.Status.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{
		{ClusterName: "a", Status: &runtime.RawExtension{Raw: []byte(`{"jobStatus":{"state":"RUNNING","jobID":"8d2f","text":"not a label"},"n":3}`)}},
	}
	Evict(binding, Eviction{Cluster: "a", PurgeMode: policyv1alpha1.PurgeModeDirectly, Preserve: &policyv1alpha1.StatePreservation{Rules: []policyv1alpha1.StatePreservationRule{
		{AliasLabelName: "app.example.io/state", JSONPath: "{.jobStatus.state}"},
		{AliasLabelName: "app.example.io/id", JSONPath: ".jobStatus.jobID"},
		{AliasLabelName: "n", JSONPath: "{.n}"},
		{AliasLabelName: "missing", JSONPath: "{.jobStatus.savepoint}"},
		{AliasLabelName: "text", JSONPath: "{.jobStatus.text}"},
		{AliasLabelName: "broken", JSONPath: "{.a[}"},
		{AliasLabelName: "no label!", JSONPath: "{.n}"},
	}}}, now)
	task := binding.Spec.GracefulEvictionTasks[0]
	want := map[string]string{"app.example.io/state": "RUNNING", "app.example.io/id": "8d2f", "n": "3"}
	if len(task.PreservedLabelState) != len(want) {
		t.Errorf("preserved labels = %v, want %v", task.PreservedLabelState, want)
	}
	for key, value := range want {
		if task.PreservedLabelState[key] != value {
			t.Errorf("%s = %q, want %q", key, task.PreservedLabelState[key], value)
		}
	}
	for _, missing := range []string{"missing", "text", "broken", "no label!"} {
		if !strings.Contains(task.Message, missing) {
			t.Errorf("the message does not mention %q: %s", missing, task.Message)
		}
	}
}

func TestAssess(t *testing.T) {
	healthy := workv1alpha2.AggregatedStatusItem{ClusterName: "b", Applied: true, Health: workv1alpha2.ResourceHealthy}
	at := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }
	for _, test := range []struct {
		name   string
		change func(*workv1alpha2.ResourceBinding, *workv1alpha2.GracefulEvictionTask)
		stays  bool
		next   time.Duration
	}{
		{"replacement healthy", func(*workv1alpha2.ResourceBinding, *workv1alpha2.GracefulEvictionTask) {}, false, 0},
		{"replacement not scheduled yet", func(b *workv1alpha2.ResourceBinding, _ *workv1alpha2.GracefulEvictionTask) { b.Generation++ }, true, 9 * time.Minute},
		{"no replacement", func(b *workv1alpha2.ResourceBinding, _ *workv1alpha2.GracefulEvictionTask) { b.Spec.Clusters = nil }, true, 9 * time.Minute},
		{"replacement unhealthy", func(b *workv1alpha2.ResourceBinding, _ *workv1alpha2.GracefulEvictionTask) {
			b.Status.AggregatedStatus[0].Health = workv1alpha2.ResourceUnhealthy
		}, true, 9 * time.Minute},
		{"replacement not applied", func(b *workv1alpha2.ResourceBinding, _ *workv1alpha2.GracefulEvictionTask) {
			b.Status.AggregatedStatus[0].Applied = false
		}, true, 9 * time.Minute},
		{"one of two without status", func(b *workv1alpha2.ResourceBinding, _ *workv1alpha2.GracefulEvictionTask) {
			b.Spec.Clusters = append(b.Spec.Clusters, workv1alpha2.TargetCluster{Name: "c"})
		}, true, 9 * time.Minute},
		{"replacement incomplete", func(b *workv1alpha2.ResourceBinding, _ *workv1alpha2.GracefulEvictionTask) {
			b.Annotations = map[string]string{names.RolloutAnnotation: "{}"}
			b.Status.AggregatedStatus[0].Status = &runtime.RawExtension{Raw: []byte(`{"availableReplicas":1}`)}
		}, true, 9 * time.Minute},
		{"replacement complete", func(b *workv1alpha2.ResourceBinding, _ *workv1alpha2.GracefulEvictionTask) {
			b.Annotations = map[string]string{names.RolloutAnnotation: "{}"}
			b.Status.AggregatedStatus[0].Status = &runtime.RawExtension{Raw: []byte(`{"availableReplicas":2}`)}
			b.Status.AggregatedStatus[0].Health = workv1alpha2.ResourceUnhealthy // in the middle of an update
		}, false, 0},
		{"grace period expired", func(b *workv1alpha2.ResourceBinding, task *workv1alpha2.GracefulEvictionTask) {
			b.Spec.Clusters, task.CreationTimestamp = nil, at(10*time.Minute)
		}, false, 0},
		{"own grace period", func(b *workv1alpha2.ResourceBinding, task *workv1alpha2.GracefulEvictionTask) {
			b.Spec.Clusters, task.GracePeriodSeconds = nil, ptr.To[int32](90)
		}, true, 30 * time.Second},
		{"own grace period expired", func(b *workv1alpha2.ResourceBinding, task *workv1alpha2.GracefulEvictionTask) {
			b.Spec.Clusters, task.GracePeriodSeconds = nil, ptr.To[int32](60)
		}, false, 0},
		{"deletion suppressed", func(_ *workv1alpha2.ResourceBinding, task *workv1alpha2.GracefulEvictionTask) {
			task.SuppressDeletion, task.CreationTimestamp = ptr.To(true), at(time.Hour)
		}, true, 0},
		{"deletion confirmed", func(b *workv1alpha2.ResourceBinding, task *workv1alpha2.GracefulEvictionTask) {
			b.Spec.Clusters, task.SuppressDeletion = nil, ptr.To(false)
		}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			binding := placed("b")
			binding.Status.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{healthy}
			task := workv1alpha2.GracefulEvictionTask{FromCluster: "a", CreationTimestamp: at(time.Minute)}
			test.change(binding, &task)
			binding.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{task}
			tasks, next := assess(binding, now, DefaultGracePeriod)
			if (len(tasks) == 1) != test.stays || next != test.next {
				t.Errorf("%d tasks stay, next check in %v; want %t and %v", len(tasks), next, test.stays, test.next)
			}
		})
	}
}
