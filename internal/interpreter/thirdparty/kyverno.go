package thirdparty

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

var kyvernoPolicy = kinds.Kind{
	AggregateStatus: kinds.Aggregate(mergeKyverno),
	ReflectStatus:   kinds.ReflectFields("ready", "conditions", "autogen", "rulecount"),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		ready, found, err := fields.Bool(obj.Object, "status", "ready")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		if found {
			return kinds.Healthy(ready), nil
		}
		condition, _, err := kinds.Condition(obj, "Ready")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		return kinds.Healthy(condition == "True"), nil
	},
}

// mergeKyverno calls a policy ready if it is in every member that says anything about it.
func mergeKyverno(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	if !anyReported(members) {
		return nil
	}
	last(status, members, "autogen")
	counts := map[string]any{}
	delete(status, "ready")
	for _, m := range members {
		ready, found, err := fields.Bool(m.Status, "ready")
		if err != nil {
			return m.Failed(err)
		}
		if before, set := status["ready"]; found && (!set || before == true) {
			status["ready"] = ready
		}
		rules, _, err := fields.Map(m.Status, "rulecount")
		if err != nil {
			return m.Failed(err)
		}
		for name := range rules {
			n, _, err := fields.Int(rules, name)
			if err != nil {
				return m.Failed(fields.Under("rulecount", err))
			}
			total, _ := counts[name].(int64)
			counts[name] = total + n
		}
	}
	if len(counts) > 0 {
		status["rulecount"] = counts
	}
	conditions, err := kinds.MergedConditions(members)
	if err != nil {
		return err
	}
	kinds.SetList(status, "conditions", conditions)
	return nil
}
