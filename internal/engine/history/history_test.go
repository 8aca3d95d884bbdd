package history

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/rollout/revisions"
)

// TestPaused checks that a paused Deployment without a history gets no revision for a new pod template, and keeps the one that it runs.
func TestPaused(t *testing.T) {
	workload := func(image string, paused bool) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "shop", "name": "web"},
			"spec": map[string]any{
				"paused": paused, "revisionHistoryLimit": int64(0),
				"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": image}}}},
			},
		}}
	}
	record := revisions.Present(workload("web:1", false))
	record.Number = 7
	stored := []*cell.Revision{{Record: record}}
	if p := planFor(workload("web:2", true), stored); !p.isEmpty() {
		t.Errorf("a paused Deployment: %+v, want nothing", p)
	}
	if p := planFor(workload("web:2", false), stored); !p.Create || p.Number != 8 || len(p.Remove) != 1 {
		t.Errorf("after that: %+v, want revision 8 instead of revision 7", p)
	}
}
