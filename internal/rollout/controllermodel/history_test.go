package controllermodel

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModelAllowsRecordedHistories checks the models of Deployments and StatefulSets against what the stock kube-controller-manager did. `make record-controllers`
// records the histories.
func TestModelAllowsRecordedHistories(t *testing.T) {
	for _, h := range recorded(t) {
		t.Run(h.Source, func(t *testing.T) {
			decisions, err := h.Check()
			if err != nil {
				t.Fatal(err)
			}
			if decisions < 10 {
				t.Errorf("the history has only %d decisions", decisions)
			}
			t.Logf("%s: the model makes all %d decisions", h.Kind, decisions)
		})
	}
}

// TestCheckNoticesOtherDecisions changes one decision of each recorded history, and sees the check fail.
func TestCheckNoticesOtherDecisions(t *testing.T) {
	for _, h := range recorded(t) {
		t.Run(h.Source, func(t *testing.T) {
			for i := range h.Events {
				e := &h.Events[i]
				switch {
				case e.Set != nil && e.Set.Size > 0:
					e.Set.Size += 20
				case e.Pod != nil && e.Pod.Ordinal > 0 && !e.Pod.Gone && !e.Pod.Terminating:
					e.Pod.Revision = "another"
				default:
					continue
				}
				if _, err := h.Check(); err == nil || !strings.Contains(err.Error(), "the controller") {
					t.Errorf("event %d: %v", i, err)
				}
				return
			}
			t.Error("there is no decision to change")
		})
	}
}

func recorded(t *testing.T) []*History {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) < 6 {
		t.Fatalf("there are %d recorded histories, %v", len(paths), err)
	}
	histories := make([]*History, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		histories[i] = &History{}
		if err := json.Unmarshal(text, histories[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return histories
}
