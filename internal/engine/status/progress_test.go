package status

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestProgress checks when there is something to tell about the progress of an update.
func TestProgress(t *testing.T) {
	with := func(status, reason string) progress {
		return progressIn(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
			map[string]any{"type": "Progressing", "status": status, "reason": reason, "message": "In member1: it is late"},
		}}}})
	}
	none, updating, late, done := progressIn(&unstructured.Unstructured{Object: map[string]any{}}), with("True", "ReplicaSetUpdated"), with("False", "ProgressDeadlineExceeded"), with("True", "NewReplicaSetAvailable")
	if want := (progress{"False", "ProgressDeadlineExceeded", "In member1: it is late"}); late != want {
		t.Errorf("read %v, want %v", late, want)
	}
	for name, test := range map[string]struct {
		before, now      progress
		stopped, resumed bool
	}{
		"it begins":              {none, updating, false, false},
		"it finishes":            {updating, done, false, false},
		"it is late":             {updating, late, true, false},
		"it is late from now on": {none, late, true, false},
		"it is still late":       {late, late, false, false},
		"it goes on":             {late, updating, false, true},
		"it finishes after all":  {late, done, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.now.stopped(test.before); got != test.stopped {
				t.Errorf("stopped: %t", got)
			}
			if got := test.now.resumed(test.before); got != test.resumed {
				t.Errorf("resumed: %t", got)
			}
		})
	}
}
