package rollout

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
)

func TestLiveOf(t *testing.T) {
	obj := object(t, web)
	obj.SetResourceVersion("41")
	obj.SetGeneration(3)
	obj.SetAnnotations(map[string]string{names.RolloutCommandAnnotation: "4/abc"})
	obj.Object["status"] = map[string]any{
		"observedGeneration": int64(3), "replicas": int64(10), "updatedReplicas": int64(4), "availableReplicas": int64(8),
		"conditions": []any{map[string]any{"type": "Available", "status": "False"}, map[string]any{"type": "Progressing", "status": "True"}},
	}
	live := LiveOf(obj)
	want := Observation{Version: 41, Seq: 4, Revision: "abc", Current: true, Pods: 10, Available: 8, Updated: 4, Remaining: 6}
	if live.Observation != want || live.Stuck || !live.Short() || live.Command.Replicas != 9 {
		t.Errorf("got %+v, want %+v", live, want)
	}
	obj.SetResourceVersion("42")
	if LiveOf(obj).Progressed(live) {
		t.Error("another version alone is no progress")
	}
	obj.SetGeneration(4)
	if stale := LiveOf(obj); stale.Observation.Current || !stale.Progressed(live) {
		t.Errorf("the status is of an earlier generation: %+v", stale)
	}
	obj.Object["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": "Progressing", "status": "False"}}
	if !LiveOf(obj).Stuck {
		t.Error("the controller has given up")
	}
	if LiveOf(&unstructured.Unstructured{Object: map[string]any{"kind": "Job", "apiVersion": "batch/v1"}}).Progressed(nil) {
		t.Error("other kinds have no progress")
	}
}

// The status of a CloneSet does not tell whether it has yet to remove pods that it has marked.
func TestCloneSetByPods(t *testing.T) {
	set := object(t, `{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","metadata":{"name":"web","generation":2},
		"spec":{"replicas":2,"updateStrategy":{"partition":"50%","maxSurge":1}},
		"status":{"observedGeneration":2,"replicas":2,"updatedReplicas":1,"availableReplicas":2}}`)
	pod := func(name, marked string) *unstructured.Unstructured {
		p := &unstructured.Unstructured{Object: map[string]any{}}
		p.SetName(name)
		p.SetLabels(map[string]string{markedDeletionLabel: marked})
		return p
	}
	live := LiveOf(set)
	if !live.Unsure || live.Command != (Command{Replicas: 2, Surge: 1, Partition: 1}) || live.Observation.Terminating == 0 {
		t.Errorf("by its status: %+v", live)
	}
	for marked, remaining := range map[string]int{"": 0, "true": 1} {
		if now := live.WithPods(set, []*unstructured.Unstructured{pod("a", ""), pod("b", marked)}); now.Unsure || now.Observation.Terminating != remaining || now.Observation.Remaining != 0 {
			t.Errorf("with a pod marked %q: %+v", marked, now)
		}
	}
	if now := live.WithPods(set, []*unstructured.Unstructured{pod("a", "")}); now.Observation.Remaining == 0 {
		t.Errorf("with a pod missing: %+v", now)
	}
	if err := unstructured.SetNestedField(set.Object, int64(0), "status", "updatedReplicas"); err != nil {
		t.Fatal(err)
	}
	if live := LiveOf(set); live.Unsure || live.Observation.Remaining != 1 {
		t.Errorf("in the middle: %+v", live)
	}
}

// The status of a StatefulSet with a partition does not tell whether its old pods are those below the partition. Their ordinals do.
func TestStatefulSetByPods(t *testing.T) {
	set := func(partition, start, pods, updated int) *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db","generation":2},
			"spec":{"replicas":4,"ordinals":{"start":%d},"updateStrategy":{"rollingUpdate":{"partition":%d}}},
			"status":{"observedGeneration":2,"replicas":%d,"updatedReplicas":%d,"availableReplicas":4,"updateRevision":"new"}}`, start, partition, pods, updated))
	}
	pod := func(ordinal int, revision string) *unstructured.Unstructured {
		p := &unstructured.Unstructured{Object: map[string]any{}}
		p.SetName(fmt.Sprintf("db-%d", ordinal))
		p.SetLabels(map[string]string{podRevisionLabel: revision})
		return p
	}
	going := func(p *unstructured.Unstructured) *unstructured.Unstructured {
		p.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		return p
	}
	type pods = []*unstructured.Unstructured
	for _, test := range []struct {
		name   string
		set    *unstructured.Unstructured
		pods   pods // nil if the status tells
		atRest bool
	}{
		{"all are updated", set(2, 0, 4, 4), nil, true},
		{"too many are old", set(2, 0, 4, 1), nil, false},
		{"one is missing", set(2, 0, 3, 2), nil, false},
		{"the old ones are below the partition", set(2, 0, 4, 2), pods{pod(0, "old"), pod(1, "old"), pod(2, "new"), pod(3, "new")}, true},
		{"a new one is below the partition, and an old one is not", set(2, 0, 4, 2), pods{pod(0, "new"), pod(1, "old"), pod(2, "old"), pod(3, "new")}, false},
		{"the partition keeps all", set(4, 0, 4, 0), pods{pod(0, "old"), pod(1, "old"), pod(2, "old"), pod(3, "old")}, true},
		{"ordinals start later", set(2, 7, 4, 2), pods{pod(7, "old"), pod(8, "old"), pod(9, "new"), pod(10, "new")}, true},
		{"one has yet to go, and another to come", set(2, 0, 4, 2), pods{pod(1, "old"), pod(2, "new"), pod(3, "new"), pod(4, "old")}, false},
		{"one is terminating", set(2, 0, 4, 2), pods{going(pod(0, "old")), pod(1, "old"), pod(2, "new"), pod(3, "new")}, false},
		{"pods were not created yet", set(2, 0, 4, 2), pods{pod(2, "new"), pod(3, "new")}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			live := LiveOf(test.set)
			if live.Unsure != (test.pods != nil) {
				t.Fatalf("the status tells: %t; %+v", !live.Unsure, live)
			}
			c := Cluster{Entry: Entry{Seq: 1, Command: live.Command}}
			if live.Unsure {
				live.Observation.Seq = 1
				if c.Observed = &live.Observation; c.atRest() {
					t.Error("without its pods, it must not count as at rest")
				}
				live = live.WithPods(test.set, test.pods)
			}
			live.Observation.Seq = 1
			if c.Observed = &live.Observation; c.atRest() != test.atRest {
				t.Errorf("at rest: %t, by %+v", c.atRest(), live.Observation)
			}
		})
	}
}
