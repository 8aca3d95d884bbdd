package rebalance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// testUnestablished changes the topology while a cell does not serve a kind, because its name is taken. It waits until that is cleared up.
func (s *site) testUnestablished(t *testing.T) {
	first, second := definition(t, "things", "Thing"), definition(t, "stuffs", "Thing")
	s.create(t, s.hub, first)
	testenv.Eventually(t, "the first has the name", func(ctx context.Context) (bool, error) {
		return s.hasCondition(ctx, first, "Established", "True")
	})
	s.create(t, s.hub, second)
	testenv.Eventually(t, "the second has no name", func(ctx context.Context) (bool, error) {
		return s.hasCondition(ctx, second, "NamesAccepted", "False")
	})
	testenv.Eventually(t, "both are in the cell", func(ctx context.Context) (bool, error) {
		copied := definition(t, "stuffs", "Thing")
		err := s.cells["cell-b"].Get(ctx, client.ObjectKeyFromObject(copied), copied)
		return err == nil, err
	})
	s.change(t, cells.Weight("cell-b", 2))
	testenv.Eventually(t, "the change waits and says for what", func(ctx context.Context) (bool, error) {
		settled := meta.FindStatusCondition(s.topology(ctx, t).Status.Conditions, names.TopologySettled)
		return settled != nil && settled.Reason == "Blocked" && strings.Contains(settled.Message, "stuffs.example.io"), fmt.Errorf("settled is %+v", settled)
	})
	for _, object := range []*unstructured.Unstructured{second, first} {
		if err := s.hub.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitStable(t)
}

func (s *site) hasCondition(ctx context.Context, object *unstructured.Unstructured, kind, status string) (bool, error) {
	if err := s.hub.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
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
