package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/rollout"
)

// rolling is a Deployment of generation 2 in the middle of an update: one cluster has finished, one has begun, one waits, one is being left.
func rolling(t *testing.T) (*unstructured.Unstructured, *workv1alpha2.ResourceBinding) {
	t.Helper()
	template := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "shop", "name": "web", "generation": int64(2)},
		"status": map[string]any{"observedGeneration": int64(1)},
	}}
	entry := func(replicas, surge, unavailable int) rollout.Entry {
		return rollout.Entry{Seq: 2, Command: rollout.Command{Replicas: replicas, Surge: surge, Unavailable: unavailable, Revision: "b"}, Revisions: []string{"b"}}
	}
	ledger, err := rollout.Ledger{"a": entry(3, 1, 0), "b": entry(3, 1, 0), "c": entry(3, 0, 1), "d": entry(1, 0, 1)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	binding := &workv1alpha2.ResourceBinding{}
	binding.Annotations = map[string]string{names.RolloutAnnotation: ledger, names.RolloutWaitsAnnotation: `{"c":"waits for other clusters: maxSurge and maxUnavailable are used up"}`}
	report := func(cluster string, replicas, updated, available, generation int64) {
		binding.Status.AggregatedStatus = append(binding.Status.AggregatedStatus, workv1alpha2.AggregatedStatusItem{ClusterName: cluster, Applied: true, Status: &runtime.RawExtension{
			Raw: fmt.Appendf(nil, `{"replicas":%d,"updatedReplicas":%d,"availableReplicas":%d,"resourceTemplateGeneration":%d,"generation":4,"observedGeneration":4}`, replicas, updated, available, generation),
		}})
	}
	for _, name := range []string{"a", "b", "c"} {
		binding.Spec.Clusters = append(binding.Spec.Clusters, workv1alpha2.TargetCluster{Name: name, Replicas: 3})
	}
	report("a", 3, 3, 3, 2)
	report("b", 4, 1, 3, 2)
	report("c", 3, 3, 3, 1)
	report("d", 1, 1, 1, 1)
	return template, binding
}

func TestRolloutState(t *testing.T) {
	template, binding := rolling(t)
	state, err := newRolloutState(template, binding)
	if err != nil {
		t.Fatal(err)
	}
	want := `Deployment shop/web: 4 of 9 updated, 10 available  [########............]
CLUSTER  REPLICAS  UPDATED  AVAILABLE  MAY    STATE
a        3         3        3                 done
b        3         1        3          +1 -0  updates
c        3         0        3                 waits for other clusters: maxSurge and maxUnavailable are used up
d        0         0        1                 is being left
`
	var out bytes.Buffer
	if err := state.print(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the table differs (-want +got):\n%s", diff)
	}
	if wait := "b updates; c waits for other clusters: maxSurge and maxUnavailable are used up; d is being left"; state.Done || state.waiting() != wait {
		t.Errorf("done is %t, and it waits: %q", state.Done, state.waiting())
	}
	if state.Clusters[1].State = "done with nothing"; !state.Clusters[0].Done || !strings.HasPrefix(state.waiting(), "b done with nothing; c waits") {
		t.Errorf("whether a cluster has finished is told by its text: it waits: %q", state.waiting())
	}
}

// A cluster that has updated all pods but those that its partition keeps has finished.
func TestRolloutWithPartition(t *testing.T) {
	template, binding := rolling(t)
	template.SetKind("StatefulSet")
	template.Object["status"] = map[string]any{"observedGeneration": int64(2)}
	entry := rollout.Entry{Seq: 2, Command: rollout.Command{Replicas: 3, Unavailable: 1, Partition: 2, Revision: "b"}, Revisions: []string{"a", "b"}}
	ledger, err := rollout.Ledger{"a": entry}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	binding.Annotations = map[string]string{names.RolloutAnnotation: ledger}
	binding.Spec.Clusters = binding.Spec.Clusters[:1]
	for updated, want := range map[int]string{0: "updates", 1: "done: the partition keeps 2 old pods", 3: "done"} {
		binding.Status.AggregatedStatus[0].Status.Raw = fmt.Appendf(nil,
			`{"replicas":3,"updatedReplicas":%d,"availableReplicas":3,"resourceTemplateGeneration":2,"generation":4,"observedGeneration":4}`, updated)
		state, err := newRolloutState(template, binding)
		if err != nil || state.Clusters[0].State != want || state.Done != strings.HasPrefix(want, "done") {
			t.Errorf("%d updated: %+v, %v; want %q", updated, state, err, want)
		}
	}
}

// A rollout has finished when all clusters have, and the template's status says so.
func TestRolloutIsDone(t *testing.T) {
	template, binding := rolling(t)
	binding.Annotations = nil
	for i, name := range []string{"a", "b", "c"} {
		binding.Status.AggregatedStatus[i].ClusterName = name
		binding.Status.AggregatedStatus[i].Status = binding.Status.AggregatedStatus[0].Status
	}
	state, err := newRolloutState(template, binding)
	if err != nil || state.Done {
		t.Fatalf("before the template's status has followed: %+v, %v", state, err)
	}
	template.Object["status"] = map[string]any{"observedGeneration": int64(2)}
	if state, err = newRolloutState(template, binding); err != nil || !state.Done {
		t.Errorf("all clusters have finished: %+v, %v", state, err)
	}
	binding.Annotations = map[string]string{names.RolloutWaitsAnnotation: "?"}
	if _, err := newRolloutState(template, binding); err == nil || !strings.Contains(err.Error(), "reading the annotation") {
		t.Errorf("an annotation that cannot be read: %v", err)
	}
}

// Where the output is not a terminal, only what has changed is printed.
func TestRolloutChanges(t *testing.T) {
	var out bytes.Buffer
	screen, state := newRolloutScreen(&out), &rolloutState{Workload: "Deployment shop/web", Replicas: 1, Clusters: []rolloutCluster{{Name: "a", Replicas: 1, State: "begins"}}}
	for range 2 {
		if err := screen.show(state); err != nil {
			t.Fatal(err)
		}
	}
	state.Clusters[0].Updated, state.Clusters[0].Available, state.Clusters[0].State = 1, 1, "done"
	state.Updated, state.Available, state.Done = 1, 1, true
	if err := screen.show(state); err != nil {
		t.Fatal(err)
	}
	want := "a: 0 of 1 updated, 0 available: begins\na: 1 of 1 updated, 1 available: done\nDeployment shop/web: 1 of 1 updated, 1 available  [####################]\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the output differs (-want +got):\n%s", diff)
	}
}

// TestTimedOut has errors of clients at and before the end of a context.
func TestTimedOut(t *testing.T) {
	limiter := errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	for _, test := range []struct {
		name     string
		deadline time.Duration // 0 means none
		err      error
		want     bool
	}{
		{"the context has ended", -time.Second, fmt.Errorf("reading: %w", context.DeadlineExceeded), true},
		{"the rate limiter knows before", -time.Nanosecond, limiter, true},
		{"another error in time", time.Hour, limiter, false},
		{"another error without a limit", 0, limiter, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := t.Context()
			if test.deadline != 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.deadline)
				defer cancel()
			}
			if got := timedOut(ctx, test.err); got != test.want {
				t.Errorf("it timed out: %t", got)
			}
		})
	}
}
