package native

import (
	"cmp"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

var job = kinds.Kind{
	Replicas:        kinds.ReplicasAt(kinds.Path{"spec", "parallelism"}, podTemplate, 0),
	ReviseReplica:   kinds.ReviseAt(kinds.Path{"spec", "parallelism"}),
	Retain:          retainJob,
	AggregateStatus: aggregateJob,
	ReflectStatus:   kinds.ReflectFields("active", "succeeded", "failed", "conditions", "startTime", "completionTime"),
	Dependencies:    kinds.DependenciesAt(podTemplate),
}

var cronJob = kinds.Kind{
	AggregateStatus: kinds.Aggregate(mergeCronJob),
	Dependencies:    kinds.DependenciesAt(kinds.Path{"spec", "jobTemplate", "spec", "template", "spec"}),
}

// generatedJobLabels are what a Job's controller selects its pods by. Each cluster generates its own.
var generatedJobLabels = []string{
	"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
}

func retainJob(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	manual, _, err := fields.Bool(desired.Object, "spec", "manualSelector")
	if err != nil || manual {
		return desired, err
	}
	retained, err := kinds.RetainAt(kinds.Path{"spec", "selector"})(desired, observed)
	if err != nil {
		return nil, err
	}
	generated, _, err := fields.Map(observed.Object, "spec", "template", "metadata", "labels")
	if err != nil {
		return nil, err
	}
	labels, _, err := fields.Map(desired.Object, "spec", "template", "metadata", "labels")
	if err != nil {
		return nil, err
	}
	merged := make(map[string]any, len(labels)+len(generatedJobLabels))
	maps.Copy(merged, labels)
	for _, name := range generatedJobLabels {
		if value, found := generated[name]; found {
			merged[name] = value
		}
	}
	if len(merged) == len(labels) {
		return retained, nil
	}
	root, err := fields.With(retained.Object, merged, "spec", "template", "metadata", "labels")
	if err != nil {
		return nil, err
	}
	return fields.Object(root), nil
}

type jobStatus struct {
	Active         int64          `json:"active"`
	Succeeded      int64          `json:"succeeded"`
	Failed         int64          `json:"failed"`
	StartTime      string         `json:"startTime"`
	CompletionTime string         `json:"completionTime"`
	Conditions     []jobCondition `json:"conditions"`
}

type jobCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	LastTransitionTime string `json:"lastTransitionTime"`
}

// jobTotal is what the Jobs of all members add up to. Times are RFC 3339 in UTC, so they compare as text.
type jobTotal struct {
	active, succeeded, failed           int64
	started, completed, failures        int
	earliestStart, latestEnd, finishing string
	failedIn                            []string
}

func (t *jobTotal) add(cluster string, s *jobStatus) {
	t.active, t.succeeded, t.failed = t.active+s.Active, t.succeeded+s.Succeeded, t.failed+s.Failed
	if s.StartTime != "" {
		t.started++
		if t.earliestStart == "" || s.StartTime < t.earliestStart {
			t.earliestStart = s.StartTime
		}
	}
	t.latestEnd = max(t.latestEnd, s.CompletionTime)
	for _, c := range s.Conditions {
		if c.Status != "True" || c.Type != "Complete" && c.Type != "Failed" {
			continue
		}
		t.finishing = max(t.finishing, c.LastTransitionTime)
		if c.Type == "Complete" {
			t.completed++
			return
		}
		t.failures++
		t.failedIn = append(t.failedIn, cluster)
		return
	}
}

// aggregateJob adds up the members' Jobs within the rules that the API server enforces on a Job's status: finished
// is final and means nothing is active, Complete and Failed each need the condition that announces them, a completion
// time belongs to a complete Job only, a start time does not change, and counts of pods do not go down.
func aggregateJob(template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	old, _, err := fields.Map(template.Object, "status")
	if err != nil {
		return nil, err
	}
	conditions, err := kinds.Conditions(old)
	if err != nil {
		return nil, fields.Under("status", err)
	}
	doomed := false
	for i, c := range conditions {
		kind, _, err := fields.String(c, "type")
		if err != nil {
			return nil, fields.Under("status.conditions"+fields.Index(i), err)
		}
		if c["status"] != "True" {
			continue
		}
		if kind == "Complete" || kind == "Failed" {
			return template, nil
		}
		doomed = doomed || kind == "FailureTarget"
	}
	var total jobTotal
	for i := range items {
		var member jobStatus
		if found, err := kinds.Decode(&items[i], &member); err != nil {
			return nil, err
		} else if found {
			total.add(items[i].ClusterName, &member)
		}
	}
	return total.status(template, old, len(items), doomed)
}

func (t *jobTotal) status(template *unstructured.Unstructured, old map[string]any, members int, doomed bool) (*unstructured.Unstructured, error) {
	n := kinds.NumbersOf(template)
	status := maps.Clone(old)
	if status == nil {
		status = map[string]any{}
	}
	counts := map[string]int64{
		"active":    t.active,
		"succeeded": max(t.succeeded, n.At("status", "succeeded")),
		"failed":    max(t.failed, n.At("status", "failed")),
	}
	if _, err := n.Verdict(true); err != nil {
		return nil, err
	}
	for name, count := range counts {
		if _, set := status[name]; set || count != 0 {
			status[name] = count
		}
	}
	// The end of everything, and a bound for the start: without any time nothing can be called finished.
	start, _ := old["startTime"].(string)
	end := max(t.latestEnd, t.finishing, t.earliestStart, start)
	finished := members > 0 && t.completed+t.failures == members && t.active == 0 && end != ""
	var conditions []any
	switch {
	case t.failures > 0 || doomed:
		if !doomed {
			conditions = append(conditions, t.condition("FailureTarget", "JobFailed", t.failureMessage()))
		}
		if finished {
			conditions = append(conditions, t.condition("Failed", "JobFailed", t.failureMessage()))
		}
	case finished:
		conditions = append(conditions,
			t.condition("SuccessCriteriaMet", "CompletionsReached", "The Job completed in all member clusters"),
			t.condition("Complete", "Completed", "The Job completed in all member clusters"))
		status["completionTime"] = end
	}
	if start == "" && finished {
		status["startTime"] = cmp.Or(t.earliestStart, end)
	} else if start == "" && members > 0 && t.started == members {
		status["startTime"] = t.earliestStart
	}
	if len(conditions) > 0 {
		before, _, err := fields.Slice(old, "conditions")
		if err != nil {
			return nil, fields.Under("status", err)
		}
		status["conditions"] = append(append([]any(nil), before...), conditions...)
	}
	return kinds.WithStatus(template, old, status), nil
}

func (t *jobTotal) failureMessage() string {
	if len(t.failedIn) == 0 {
		return "The Job failed in a member cluster that no longer runs it"
	}
	return "The Job failed in member clusters " + strings.Join(t.failedIn, ", ")
}

// condition takes its time from the members: the same reports always make the same status.
func (t *jobTotal) condition(kind, reason, message string) map[string]any {
	condition := map[string]any{"type": kind, "status": "True", "reason": reason, "message": message}
	if when := max(t.finishing, t.latestEnd); when != "" {
		condition["lastProbeTime"], condition["lastTransitionTime"] = when, when
	}
	return condition
}

func mergeCronJob(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	active := []any{}
	times := map[string]string{"lastScheduleTime": "", "lastSuccessfulTime": ""}
	for _, m := range members {
		list, _, err := fields.Slice(m.Status, "active")
		if err != nil {
			return m.Failed(err)
		}
		active = append(active, list...)
		for name, latest := range times {
			when, _, err := fields.String(m.Status, name)
			if err != nil {
				return m.Failed(err)
			}
			times[name] = max(latest, when)
		}
	}
	kinds.SetList(status, "active", active)
	for name, latest := range times {
		kinds.SetText(status, name, latest)
	}
	return nil
}
