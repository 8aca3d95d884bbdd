package status

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
)

// progress is what the condition Progressing of a Deployment says.
type progress struct{ status, reason, message string }

// progressIn returns the condition of a template; empty if it has none.
func progressIn(template *unstructured.Unstructured) progress {
	conditions, _, _ := unstructured.NestedSlice(template.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "Progressing" {
			text := func(field string) string {
				value, _ := condition[field].(string)
				return value
			}
			return progress{text("status"), text("reason"), text("message")}
		}
	}
	return progress{}
}

// stopped reports whether an update has stopped since before, and resumed whether one goes on, or has finished.
func (p progress) stopped(before progress) bool {
	return p.status == "False" && (before.status != p.status || before.reason != p.reason)
}

func (p progress) resumed(before progress) bool {
	return p.status == "True" && before.status == "False"
}

// tellProgress records an event when an update stops, and when it goes on after that, with the reasons of the condition: people look for either. An engine that starts
// repeats none.
func (b *Bindings) tellProgress(t *cell.Template, before, now *unstructured.Unstructured) {
	if t.Kind.Group != "apps" || t.Kind.Kind != "Deployment" {
		return
	}
	const aspect = "progress"
	was, is := progressIn(before), progressIn(now)
	switch {
	case is.stopped(was):
		b.recorder.Failed(events.OfTemplate(t), aspect, is.reason, is.message)
	case is.resumed(was):
		b.recorder.Succeeded(events.OfTemplate(t), aspect, is.reason, is.message, true)
	}
}
