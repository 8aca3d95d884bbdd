package controllermodel

import (
	"encoding/json"
	"fmt"
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

// histories is how many histories of each kind are recorded, by the seeds from 1.
const histories = 6

// recorded returns the recorded histories: all that are made by the seeds, and no others.
func recorded(t *testing.T) []*History {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []*History
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		for seed := 1; seed <= histories; seed++ {
			name := fmt.Sprintf("%s-%d", strings.ToLower(kind), seed)
			text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			h := &History{}
			if err := json.Unmarshal(text, h); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if h.Kind != kind || h.Source != name {
				t.Errorf("%s has history %s of a %s", name, h.Source, h.Kind)
			}
			all = append(all, h)
		}
	}
	if len(paths) != len(all) {
		t.Errorf("there are %d files, and %d recorded histories", len(paths), len(all))
	}
	return all
}
