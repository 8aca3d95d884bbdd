package native

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/rollout"
)

// Types, reasons and messages of conditions of Deployments. Tools know them.
const (
	available      = "Available"
	progressing    = "Progressing"
	replicaFailure = "ReplicaFailure"

	reasonAvailable   = "MinimumReplicasAvailable"
	reasonUnavailable = "MinimumReplicasUnavailable"
	reasonComplete    = "NewReplicaSetAvailable"
	reasonUpdating    = "ReplicaSetUpdated"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
)

// reportedCondition is a condition in the status that a member reports. It has no times: they would make each report unique, and a write.
type reportedCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// reflectDeployment reports the numbers, and those conditions that do not follow from them: whether a Deployment without all its pods is available,
// that it makes no progress, and why pods cannot be created.
func reflectDeployment(obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	report, err := deploymentStatus.Reflect(obj)
	if err != nil || report == nil {
		return report, err
	}
	conditions, err := fields.Objects(obj.Object, "status", "conditions")
	if err != nil || len(conditions) == 0 {
		return report, err
	}
	missing, _, err := fields.Int(obj.Object, "status", "unavailableReplicas")
	if err != nil {
		return nil, err
	}
	var told []reportedCondition
	for i, condition := range conditions {
		c, err := readCondition(condition)
		if err != nil {
			return nil, fields.Under("status.conditions"+fields.Index(i), err)
		}
		switch {
		case c.Type == available && missing > 0:
			told = append(told, reportedCondition{Type: c.Type, Status: c.Status})
		case c.Type == progressing && c.Status == "False", c.Type == replicaFailure && c.Status == "True":
			told = append(told, c)
		}
	}
	if len(told) == 0 {
		return report, nil
	}
	raw, err := json.Marshal(told)
	if err != nil {
		return nil, fmt.Errorf("encoding the conditions: %w", err)
	}
	out := bytes.TrimSuffix(report.Raw, []byte("}"))
	if len(out) > 1 {
		out = append(out, ',')
	}
	out = append(append(append(out, `"conditions":`...), raw...), '}')
	return &runtime.RawExtension{Raw: out}, nil
}

func readCondition(condition map[string]any) (c reportedCondition, err error) {
	for _, field := range []struct {
		name string
		into *string
	}{{"type", &c.Type}, {"status", &c.Status}, {"reason", &c.Reason}, {"message", &c.Message}} {
		if *field.into, _, err = fields.String(condition, field.name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// reportedDeployment is what conditions of the template depend on in the report of one member.
type reportedDeployment struct {
	Generation                 int64               `json:"generation"`
	ResourceTemplateGeneration int64               `json:"resourceTemplateGeneration"`
	ObservedGeneration         int64               `json:"observedGeneration"`
	Replicas                   int64               `json:"replicas"`
	UnavailableReplicas        int64               `json:"unavailableReplicas"`
	Conditions                 []reportedCondition `json:"conditions"`
}

// available reports whether the copy has enough pods by its own rules.
func (r *reportedDeployment) available() bool {
	for i := range r.Conditions {
		if r.Conditions[i].Type == available {
			return r.Conditions[i].Status == "True"
		}
	}
	return r.UnavailableReplicas == 0 && (r.ObservedGeneration > 0 || r.Replicas > 0)
}

// complaint is a condition that some members report. Its reason and message are those of the first one.
type complaint struct {
	clusters        []string
	reason, message string
}

func (c *complaint) add(cluster string, condition *reportedCondition) {
	if c.clusters = append(c.clusters, cluster); len(c.clusters) == 1 {
		c.reason, c.message = condition.Reason, condition.Message
	}
}

// mostNamed is how many clusters a message names.
const mostNamed = 10

func (c *complaint) describe() string {
	named := strings.Join(c.clusters[:min(mostNamed, len(c.clusters))], ", ")
	if more := len(c.clusters) - mostNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return "In " + named + ": " + c.message
}

// deploymentState is what the conditions of a Deployment's template follow from.
type deploymentState struct {
	name                                              string
	replicas, minAvailable                            int64 // by the template
	existing, updated, availablePods, unavailablePods int64 // in all members
	generation                                        int64
	observed                                          bool // all members know the template as it is
	refuted                                           bool // one that does has timed out
	paused, hasDeadline                               bool
	divided                                           bool
	everywhere, availableEverywhere                   bool // each chosen cluster reports its copy, as available
	changed, advanced                                 bool // the status changes anyway, and its numbers of pods do
	timedOut, otherwiseStuck, failures                complaint
}

// deploymentConditions sets the conditions of a Deployment as the controller of Kubernetes does, by the numbers of all members together. What only
// a member can know comes from its report: that there is no progress, and that pods cannot be created.
//
// A condition changes only together with the numbers, or because the report of a member does. So none costs a write of its own.
func deploymentConditions(before, aggregated *unstructured.Unstructured, placed kinds.Placed, now time.Time) (*unstructured.Unstructured, error) {
	state, err := deploymentStateOf(before, aggregated, placed)
	if err != nil {
		return nil, err
	}
	status, _, err := fields.Map(aggregated.Object, "status")
	if err != nil {
		return nil, err
	}
	stored, err := kinds.Conditions(status)
	if err != nil {
		return nil, fields.Under("status", err)
	}
	next, differs := make([]any, 0, len(stored)+3), false
	old := map[string]reportedCondition{}
	for i, condition := range stored {
		c, err := readCondition(condition)
		if err != nil {
			return nil, fields.Under("status.conditions"+fields.Index(i), err)
		}
		if _, twice := old[c.Type]; !twice {
			old[c.Type] = c
		}
	}
	wanted := map[string]*reportedCondition{
		available: state.available(old[available]), progressing: state.progressing(old[progressing]), replicaFailure: state.failure(),
	}
	for _, condition := range stored {
		kind, _ := condition["type"].(string)
		want, ours := wanted[kind]
		switch {
		case !ours:
			next = append(next, condition)
		case want == nil:
			differs = true
		default:
			touch := kind == progressing && want.Reason == reasonUpdating && state.changed
			if *want != old[kind] || touch {
				condition, differs = conditionAfter(condition, want, now), true
			}
			next = append(next, condition)
			wanted[kind] = nil
		}
	}
	for _, kind := range []string{available, progressing, replicaFailure} {
		if want := wanted[kind]; want != nil {
			next, differs = append(next, conditionAfter(nil, want, now)), true
		}
	}
	observed, err := state.observedGeneration(status, old[progressing])
	if err != nil {
		return nil, err
	}
	if !differs && observed == nil {
		return aggregated, nil
	}
	changed := maps.Clone(status)
	if changed == nil {
		changed = map[string]any{}
	}
	if observed != nil {
		changed["observedGeneration"] = *observed
	}
	kinds.SetList(changed, "conditions", next)
	return kinds.WithStatus(aggregated, status, changed), nil
}

// conditionAfter returns a condition that changes now. The time of its last transition is that of its last change of status.
func conditionAfter(old map[string]any, want *reportedCondition, now time.Time) map[string]any {
	at := now.UTC().Format(time.RFC3339)
	next := map[string]any{
		"type": want.Type, "status": want.Status, "reason": want.Reason, "message": want.Message, "lastUpdateTime": at, "lastTransitionTime": at,
	}
	if since, known := old["lastTransitionTime"].(string); known && old["status"] == want.Status {
		next["lastTransitionTime"] = since
	}
	return next
}

func deploymentStateOf(before, aggregated *unstructured.Unstructured, placed kinds.Placed) (*deploymentState, error) {
	n := kinds.NumbersOf(aggregated)
	s := &deploymentState{
		name: aggregated.GetName(), existing: n.At("status", "replicas"), updated: n.At("status", "updatedReplicas"),
		availablePods: n.At("status", "availableReplicas"), unavailablePods: n.At("status", "unavailableReplicas"),
		generation: n.At("metadata", "generation"), observed: true, changed: before != aggregated, everywhere: placed.Missing == 0, availableEverywhere: placed.Missing == 0,
	}
	var set bool
	if s.replicas, set = n.Maybe("spec", "replicas"); !set {
		s.replicas = 1
	}
	deadline, set := n.Maybe("spec", "progressDeadlineSeconds")
	s.hasDeadline = set && deadline != math.MaxInt32
	was := kinds.NumbersOf(before)
	s.advanced = s.existing != was.At("status", "replicas") || s.updated != was.At("status", "updatedReplicas") || s.availablePods != was.At("status", "availableReplicas")
	if _, err := n.Verdict(true); err != nil {
		return nil, err
	}
	if _, err := was.Verdict(true); err != nil {
		return nil, err
	}
	var err error
	if s.paused, _, err = fields.Bool(aggregated.Object, "spec", "paused"); err != nil {
		return nil, err
	}
	if s.minAvailable, err = minAvailable(aggregated, s.replicas); err != nil {
		return nil, err
	}
	s.divided = placed.Divided && aggregated.GetLabels()[names.RetainReplicasLabel] != "true" // then the replicas of members are their own
	return s, s.addReports(placed)
}

// minAvailable returns how many pods of a template are to be available.
func minAvailable(template *unstructured.Unstructured, replicas int64) (int64, error) {
	strategy, _, err := fields.String(template.Object, "spec", "strategy", "type")
	if err != nil || strategy == "Recreate" {
		return replicas, err
	}
	if replicas < 0 || replicas > math.MaxInt32 {
		return 0, fields.Invalid(fmt.Sprintf("%d is not between 0 and %d", replicas, math.MaxInt32), "spec", "replicas")
	}
	bounds, err := rollout.TemplateBounds(template, int(replicas))
	return replicas - int64(bounds.Unavailable), err
}

func (s *deploymentState) addReports(placed kinds.Placed) error {
	s.everywhere = s.everywhere && (len(placed.Items) > 0 || s.replicas == 0)
	s.availableEverywhere = s.everywhere
	for i := range placed.Items {
		item := &placed.Items[i]
		var report reportedDeployment
		found, err := kinds.Decode(item, &report)
		if err != nil {
			return err
		}
		s.everywhere = s.everywhere && found
		s.availableEverywhere = s.availableEverywhere && found && report.available()
		current := found && report.ResourceTemplateGeneration == s.generation && report.Generation == report.ObservedGeneration
		s.observed = s.observed && current
		for j := range report.Conditions {
			switch c := &report.Conditions[j]; {
			case c.Type == progressing && c.Status == "False" && c.Reason == reasonTimedOut:
				s.timedOut.add(item.ClusterName, c)
				s.refuted = s.refuted || current
			case c.Type == progressing && c.Status == "False":
				s.otherwiseStuck.add(item.ClusterName, c)
			case c.Type == replicaFailure && c.Status == "True":
				s.failures.add(item.ClusterName, c)
			}
		}
	}
	return nil
}

// observedGeneration returns the generation that the template is to report as observed, nil if it stays as it is. Members are updated one after the other, and
// when one times out, the others may never begin. Tools notice only if the template counts as observed until then.
func (s *deploymentState) observedGeneration(status map[string]any, old reportedCondition) (*int64, error) {
	now, _, err := fields.Int(status, "observedGeneration")
	if err != nil {
		return nil, fields.Under("status", err)
	}
	wanted := now
	switch {
	case s.refuted && s.hasDeadline:
		wanted = s.generation
	case (old.Reason == reasonTimedOut || len(s.timedOut.clusters) > 0) && !s.observed:
		wanted = min(now, s.generation-1)
	}
	if wanted == now {
		return nil, nil
	}
	return &wanted, nil
}

// edited reports whether nothing is known but an edit of the template that has not reached all members. Conditions follow it together with the numbers.
func (s *deploymentState) edited() bool { return !s.changed && !s.observed }

func (s *deploymentState) available(old reportedCondition) *reportedCondition {
	if s.edited() && old.Type != "" {
		return &old
	}
	enough := s.availableEverywhere
	if s.divided {
		enough = s.availablePods >= s.minAvailable
	}
	if enough {
		return &reportedCondition{available, "True", reasonAvailable, "Deployment has minimum availability."}
	}
	return &reportedCondition{available, "False", reasonUnavailable, "Deployment does not have minimum availability."}
}

func (s *deploymentState) progressing(old reportedCondition) *reportedCondition {
	stuck := &s.timedOut
	if len(stuck.clusters) == 0 {
		stuck = &s.otherwiseStuck
	}
	switch {
	case !s.hasDeadline:
		return nil
	case len(stuck.clusters) > 0:
		return &reportedCondition{progressing, "False", stuck.reason, stuck.describe()}
	case s.edited() && old.Type != "" && old.Status != "False":
		return &old
	case s.paused:
		return &reportedCondition{progressing, "Unknown", reasonPaused, "Deployment is paused"}
	case s.complete(), old.Reason == reasonComplete && s.updated == s.existing:
		return &reportedCondition{progressing, "True", reasonComplete, fmt.Sprintf("Deployment %q has successfully progressed.", s.name)}
	case (old.Reason == reasonPaused || old.Reason == reasonResumed) && !s.advanced:
		return &reportedCondition{progressing, "Unknown", reasonResumed, "Deployment is resumed"}
	}
	return &reportedCondition{progressing, "True", reasonUpdating, fmt.Sprintf("Deployment %q is progressing.", s.name)}
}

// complete reports whether all pods are of the template as it is, and available.
func (s *deploymentState) complete() bool {
	return s.observed && s.everywhere && s.updated == s.existing && s.availablePods == s.existing && s.unavailablePods == 0 && (!s.divided || s.existing == s.replicas)
}

func (s *deploymentState) failure() *reportedCondition {
	if len(s.failures.clusters) == 0 {
		return nil
	}
	return &reportedCondition{replicaFailure, "True", s.failures.reason, s.failures.describe()}
}
