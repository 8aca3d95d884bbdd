package native

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fixture"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

func TestAggregateJob(t *testing.T) {
	const (
		running  = `{active: 1, succeeded: 1, startTime: "2025-01-01T00:00:05Z"}`
		complete = `{succeeded: 2, startTime: "2025-01-01T00:00:01Z", completionTime: "2025-01-01T00:01:00Z", conditions: [{type: Complete, status: "True", lastTransitionTime: "2025-01-01T00:01:00Z"}]}`
		failed   = `{failed: 3, startTime: "2025-01-01T00:00:02Z", conditions: [{type: FailureTarget, status: "True"}, {type: Failed, status: "True", lastTransitionTime: "2025-01-01T00:02:00Z"}]}`
	)
	cases := map[string]struct {
		template string
		members  []string
		want     string
	}{
		"running":                 {`{}`, []string{running, running}, `{active: 2, succeeded: 2, startTime: "2025-01-01T00:00:05Z"}`},
		"not all there":           {`{}`, []string{running, ""}, `{active: 1, succeeded: 1}`},
		"one complete":            {`{}`, []string{running, complete}, `{active: 1, succeeded: 3, startTime: "2025-01-01T00:00:01Z"}`},
		"complete with pods left": {`{}`, []string{complete, strings.Replace(complete, "{succeeded", "{active: 1, succeeded", 1)}, `{active: 1, succeeded: 4, startTime: "2025-01-01T00:00:01Z"}`},
		"all complete": {`{startTime: "2025-01-01T00:00:09Z"}`, []string{complete, complete}, `
succeeded: 4
startTime: "2025-01-01T00:00:09Z"
completionTime: "2025-01-01T00:01:00Z"
conditions:
- {type: SuccessCriteriaMet, status: "True", reason: CompletionsReached, message: The Job completed in all member clusters, lastProbeTime: "2025-01-01T00:01:00Z", lastTransitionTime: "2025-01-01T00:01:00Z"}
- {type: Complete, status: "True", reason: Completed, message: The Job completed in all member clusters, lastProbeTime: "2025-01-01T00:01:00Z", lastTransitionTime: "2025-01-01T00:01:00Z"}`},
		"failing": {`{}`, []string{running, failed}, `
active: 1
succeeded: 1
failed: 3
startTime: "2025-01-01T00:00:02Z"
conditions:
- {type: FailureTarget, status: "True", reason: JobFailed, message: The Job failed in member clusters m2, lastProbeTime: "2025-01-01T00:02:00Z", lastTransitionTime: "2025-01-01T00:02:00Z"}`},
		"failed": {`{}`, []string{complete, failed}, `
succeeded: 2
failed: 3
startTime: "2025-01-01T00:00:01Z"
conditions:
- {type: FailureTarget, status: "True", reason: JobFailed, message: The Job failed in member clusters m2, lastProbeTime: "2025-01-01T00:02:00Z", lastTransitionTime: "2025-01-01T00:02:00Z"}
- {type: Failed, status: "True", reason: JobFailed, message: The Job failed in member clusters m2, lastProbeTime: "2025-01-01T00:02:00Z", lastTransitionTime: "2025-01-01T00:02:00Z"}`},
		"counts do not go down": {`{succeeded: 5, failed: 7, active: 3}`, []string{running}, `{active: 1, succeeded: 5, failed: 7, startTime: "2025-01-01T00:00:05Z"}`},
		"finished is final":     {`{succeeded: 5, conditions: [{type: Complete, status: "True"}]}`, []string{failed}, `{succeeded: 5, conditions: [{type: Complete, status: "True"}]}`},
		"in no member":          {`{active: 0}`, nil, `{active: 0}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			template := fixture.Object(t, `{apiVersion: batch/v1, kind: Job}`)
			template.Object["status"] = fixture.Value(t, tc.template)
			unchanged := fixture.Frozen(t, template)
			got, err := job.AggregateStatus(template, fixture.Items(t, tc.members...))
			if err != nil {
				t.Fatal(err)
			}
			unchanged()
			fixture.Equal(t, got.Object["status"], fixture.Value(t, tc.want))
		})
	}
}

// TestJobStatusKeepsTheRules aggregates random reports of a Job, and validates each status as the API server would.
func TestJobStatusKeepsTheRules(t *testing.T) {
	start := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	stamp := func(t *rapid.T, label string) string {
		return start.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, label)) * time.Second).Format(time.RFC3339)
	}
	rapid.Check(t, func(t *rapid.T) {
		template := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}
		for round := range rapid.IntRange(1, 6).Draw(t, "rounds") {
			items := make([]workv1alpha2.AggregatedStatusItem, rapid.IntRange(0, 3).Draw(t, "members"))
			for i := range items {
				items[i].ClusterName = fmt.Sprintf("m%d", i)
				if rapid.Bool().Draw(t, "silent") && rapid.Bool().Draw(t, "really") {
					continue
				}
				status := map[string]any{"succeeded": rapid.IntRange(0, 3).Draw(t, "succeeded"), "failed": rapid.IntRange(0, 3).Draw(t, "failed")}
				if rapid.Bool().Draw(t, "started") {
					status["startTime"] = stamp(t, "start")
				}
				switch rapid.IntRange(0, 2).Draw(t, "state") {
				case 0:
					status["active"] = rapid.IntRange(0, 2).Draw(t, "active")
				case 1:
					status["completionTime"] = stamp(t, "completion")
					status["conditions"] = []any{map[string]any{"type": "Complete", "status": "True", "lastTransitionTime": stamp(t, "done")}}
				case 2:
					status["conditions"] = []any{map[string]any{"type": "Failed", "status": "True", "lastTransitionTime": stamp(t, "done")}}
				}
				raw, err := json.Marshal(status)
				if err != nil {
					t.Fatal(err)
				}
				items[i].Status = &runtime.RawExtension{Raw: raw}
			}
			after, err := aggregateJob(template, items)
			if err != nil {
				t.Fatal(err)
			}
			checkJobRules(t, round, template, after)
			template = after
		}
	})
}

func checkJobRules(t *rapid.T, round int, before, after *unstructured.Unstructured) {
	is := func(obj *unstructured.Unstructured, kind string) bool {
		status, _, err := kinds.Condition(obj, kind)
		if err != nil {
			t.Fatal(err)
		}
		return status == "True"
	}
	text := func(obj *unstructured.Unstructured, name string) string {
		status, _ := obj.Object["status"].(map[string]any)
		value, _ := status[name].(string)
		return value
	}
	was, now := kinds.NumbersOf(before), kinds.NumbersOf(after)
	complete, failed := is(after, "Complete"), is(after, "Failed")
	for rule, broken := range map[string]bool{
		"complete and failed":                  complete && failed,
		"complete but doomed":                  complete && is(after, "FailureTarget"),
		"complete without criteria":            complete && !is(after, "SuccessCriteriaMet"),
		"failed without target":                failed && !is(after, "FailureTarget"),
		"finished but active":                  (complete || failed) && now.At("status", "active") > 0,
		"finished but never started":           (complete || failed) && text(after, "startTime") == "",
		"complete without time":                complete && text(after, "completionTime") == "",
		"time without complete":                !complete && text(after, "completionTime") != "",
		"completed before it started":          complete && text(after, "completionTime") < text(after, "startTime"),
		"completion time changed":              text(before, "completionTime") != "" && text(before, "completionTime") != text(after, "completionTime"),
		"start time changed":                   text(before, "startTime") != "" && text(before, "startTime") != text(after, "startTime"),
		"failed count went down":               now.At("status", "failed") < was.At("status", "failed"),
		"succeeded count went down":            now.At("status", "succeeded") < was.At("status", "succeeded"),
		"terminal condition disappeared":       is(before, "Complete") && !complete || is(before, "Failed") && !failed,
		"failure target disappeared":           is(before, "FailureTarget") && !is(after, "FailureTarget"),
		"success criteria disappeared":         is(before, "SuccessCriteriaMet") && !is(after, "SuccessCriteriaMet"),
		"changed although it was finished":     (is(before, "Complete") || is(before, "Failed")) && before != after,
		"success criteria and failure at once": is(after, "SuccessCriteriaMet") && is(after, "FailureTarget"),
	} {
		if broken {
			t.Fatalf("round %d: %s\nbefore %v\nafter %v", round, rule, before.Object["status"], after.Object["status"])
		}
	}
}
