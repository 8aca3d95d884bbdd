package native

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

var budgetNumbers = []string{"currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"}

var podDisruptionBudget = kinds.Kind{
	AggregateStatus: kinds.Aggregate(mergeBudget),
	ReflectStatus:   kinds.ReflectFields(append([]string{"disruptedPods"}, budgetNumbers...)...),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		n := kinds.NumbersOf(obj)
		return n.Verdict(n.At("status", "currentHealthy") >= n.At("status", "desiredHealthy"))
	},
}

var autoscalerNumbers = []string{"currentReplicas", "desiredReplicas"}

var horizontalPodAutoscaler = kinds.Kind{
	AggregateStatus: kinds.Aggregate(func(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		return kinds.Sum(status, members, autoscalerNumbers...)
	}),
	ReflectStatus: kinds.ReflectFields(autoscalerNumbers...),
}

// mergeBudget also lists the pods being disrupted, each with the name of its cluster.
func mergeBudget(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	disrupted := map[string]any{}
	for _, m := range members {
		pods, _, err := fields.Map(m.Status, "disruptedPods")
		if err != nil {
			return m.Failed(err)
		}
		for name, when := range pods {
			disrupted[m.Cluster+"/"+name] = when
		}
	}
	if len(disrupted) > 0 {
		status["disruptedPods"] = disrupted
	} else {
		delete(status, "disruptedPods")
	}
	return kinds.Sum(status, members, budgetNumbers...)
}
