package rebalance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/testenv"
)

// definition returns the definition of a kind.
func definition(t *testing.T, plural, kind string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.example.io"},
		"spec":{"group":"example.io","scope":"Namespaced","names":{"plural":"%[1]s","kind":"%[2]s"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, plural, kind), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// testUnestablished has a cell join while it does not serve one kind, because its name is taken, and does not have
// another. The change waits for both. Watches then begin in the cell where it knows the history of every kind,
// without a relist.
func (s *hubEnv) testUnestablished(t *testing.T) {
	first, second, third := definition(t, "things", "Thing"), definition(t, "stuffs", "Thing"), definition(t, "widgets", "Widget")
	s.create(t, s.hub, first)
	testenv.Eventually(t, "the first is established", func(ctx context.Context) (bool, error) {
		return hasCondition(ctx, s.hub, first, "Established", "True")
	})
	s.create(t, s.hub, second)
	testenv.Eventually(t, "the second is not accepted", func(ctx context.Context) (bool, error) {
		return hasCondition(ctx, s.hub, second, "NamesAccepted", "False")
	})
	testenv.Eventually(t, "both are in the cell", func(ctx context.Context) (bool, error) {
		copied := definition(t, "stuffs", "Thing")
		err := s.cells["cell-a"].Get(ctx, client.ObjectKeyFromObject(copied), copied)
		return err == nil, err
	})
	s.change(t, cells.Add("cell-a", 1))
	testenv.Eventually(t, "the change is blocked, with the reason", func(ctx context.Context) (bool, error) {
		settled := meta.FindStatusCondition(s.topology(ctx, t).Status.Conditions, names.TopologySettled)
		return settled != nil && settled.Reason == "Blocked" && strings.Contains(settled.Message, "stuffs.example.io"), fmt.Errorf("settled is %+v", settled)
	})
	s.create(t, s.hub, third)
	testenv.Eventually(t, "the cell serves the third", func(ctx context.Context) (bool, error) {
		return hasCondition(ctx, s.cells["cell-a"], definition(t, "widgets", "Widget"), "Established", "True")
	})
	if err := s.hub.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	topology := s.awaitStable(t)
	for _, kind := range []schema.GroupVersionResource{
		{Group: "example.io", Version: "v1", Resource: "things"}, {Group: "example.io", Version: "v1", Resource: "widgets"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Version: "v1", Resource: "secrets"},
	} {
		s.checkWatchedFrom(t, kind, topology.Status.Epochs)
	}
	for _, object := range []*unstructured.Unstructured{first, third} {
		if err := s.hub.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// checkWatchedFrom expects that a watch of a kind can continue in the cell that has joined last.
func (s *hubEnv) checkWatchedFrom(t *testing.T, kind schema.GroupVersionResource, epochs []cellplanev1alpha1.TopologyEpoch) {
	t.Helper()
	// The last epoch began when the change ended.
	from := epochs[len(epochs)-2].From["cell-a"]
	if from == 0 {
		t.Fatalf("positions are carried by %+v", epochs)
	}
	watcher, err := dynamic.NewForConfigOrDie(configFor(t, s.federation.Cells[0])).Resource(kind).
		Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(from), TimeoutSeconds: ptr.To(int64(1))})
	if err != nil {
		t.Fatalf("watching %s in cell-a from %d: %v", kind.Resource, from, err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			t.Errorf("a watch of %s that continues in cell-a from %d got %+v", kind.Resource, from, event.Object)
		}
	}
}

func hasCondition(ctx context.Context, in client.Client, object *unstructured.Unstructured, kind, status string) (bool, error) {
	if err := in.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return false, err
	}
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == kind && condition["status"] == status {
			return true, nil
		}
	}
	return false, err
}
