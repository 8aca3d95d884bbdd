package thirdparty

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

// generationFields are reported with a status but are no part of it.
var generationFields = []string{"generation", "resourceTemplateGeneration"}

// last sets fields to what the last member that reports them says, and removes those that none reports.
func last(status map[string]any, members []kinds.Member, names ...string) {
	for _, name := range names {
		delete(status, name)
		for _, m := range slices.Backward(members) {
			if value := m.Status[name]; value != nil && value != "" {
				status[name] = value
				break
			}
		}
	}
}

// earliest and latest set a field to the first or last of the members' times. Times are RFC 3339 in UTC and compare
// as text.
func earliest(status map[string]any, members []kinds.Member, name string) error {
	return pickText(status, members, name, func(a, b string) bool { return a < b })
}

func latest(status map[string]any, members []kinds.Member, name string) error {
	return pickText(status, members, name, func(a, b string) bool { return a > b })
}

// worst sets a field to the most severe of the members' values; the order lists values from harmless to severe.
func worst(status map[string]any, members []kinds.Member, name string, order []string) error {
	return pickText(status, members, name, func(a, b string) bool { return slices.Index(order, a) > slices.Index(order, b) })
}

func pickText(status map[string]any, members []kinds.Member, name string, better func(a, b string) bool) error {
	best := ""
	for _, m := range members {
		value, _, err := fields.String(m.Status, name)
		if err != nil {
			return m.Failed(err)
		}
		if value != "" && (best == "" || better(value, best)) {
			best = value
		}
	}
	kinds.SetText(status, name, best)
	return nil
}

// only returns the one member there is. A workload that runs as a whole in one cluster has that cluster's status.
func only(members []kinds.Member) (kinds.Member, bool) {
	if len(members) != 1 || members[0].Status == nil {
		return kinds.Member{}, false
	}
	return members[0], true
}

// adopt makes a status that of a member.
func adopt(status map[string]any, from kinds.Member) {
	clear(status)
	maps.Copy(status, from.Status)
	for _, name := range generationFields {
		delete(status, name)
	}
}

// adoptOnly returns a merge that adopts the status of a single member and merges those of several otherwise.
func adoptOnly(several kinds.Merge) kinds.Merge {
	return func(template *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		if member, ok := only(members); ok {
			adopt(status, member)
			return nil
		}
		if !anyReported(members) {
			return nil
		}
		return several(template, status, members)
	}
}

func anyReported(members []kinds.Member) bool {
	return slices.ContainsFunc(members, func(m kinds.Member) bool { return m.Status != nil })
}

// concat sets a field to the lists of all members, one after the other.
func concat(status map[string]any, members []kinds.Member, name string) error {
	var all []any
	for _, m := range members {
		list, _, err := fields.Slice(m.Status, name)
		if err != nil {
			return m.Failed(err)
		}
		all = append(all, list...)
	}
	kinds.SetList(status, name, all)
	return nil
}

// newestConditions sets the conditions to the latest of each type.
func newestConditions(status map[string]any, members []kinds.Member) error {
	return conditionsByType(status, members, newer)
}

func newer(a, b map[string]any) bool {
	when := func(condition map[string]any) string {
		updated, _ := condition["lastUpdateTime"].(string)
		changed, _ := condition["lastTransitionTime"].(string)
		return max(updated, changed)
	}
	return when(a) > when(b)
}

// conditionsByType sets the conditions to the best of each type, in the order in which types first appear: many kinds
// allow one condition of a type only.
func conditionsByType(status map[string]any, members []kinds.Member, better func(a, b map[string]any) bool) error {
	var order []string
	best := map[string]map[string]any{}
	for _, m := range members {
		conditions, err := kinds.Conditions(m.Status)
		if err != nil {
			return m.Failed(err)
		}
		for i, condition := range conditions {
			kind, _, err := fields.String(condition, "type")
			if err != nil {
				return m.Failed(fields.Under("conditions"+fields.Index(i), err))
			}
			before, seen := best[kind]
			if !seen {
				order = append(order, kind)
			}
			if !seen || better(condition, before) {
				best[kind] = condition
			}
		}
	}
	var list []any
	for _, kind := range order {
		list = append(list, best[kind])
	}
	kinds.SetList(status, "conditions", list)
	return nil
}

// finishedIn returns the members in which a condition is true and the last time that it became so.
func finishedIn(members []kinds.Member, conditionType string) (clusters []string, when string, err error) {
	for _, m := range members {
		conditions, err := kinds.Conditions(m.Status)
		if err != nil {
			return nil, "", m.Failed(err)
		}
		for _, condition := range conditions {
			if condition["type"] == conditionType && condition["status"] == "True" {
				clusters = append(clusters, m.Cluster)
				changed, _ := condition["lastTransitionTime"].(string)
				when = max(when, changed)
				break
			}
		}
	}
	return clusters, when, nil
}

func condition(kind, reason, message, when string) map[string]any {
	c := map[string]any{"type": kind, "status": "True", "reason": reason, "message": message}
	if when != "" {
		c["lastProbeTime"], c["lastTransitionTime"] = when, when
	}
	return c
}
