package native

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

var persistentVolume = kinds.Kind{
	Retain:          kinds.RetainAt(kinds.Path{"spec", "claimRef"}),
	AggregateStatus: kinds.Aggregate(mergePhase("Pending", "Failed", "Pending", "Available", "Bound", "Released")),
}

var persistentVolumeClaim = kinds.Kind{
	Retain:          kinds.RetainAt(kinds.Path{"spec", "volumeName"}),
	AggregateStatus: kinds.Aggregate(mergePhase("Pending", "Lost", "Pending", "Bound")),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		value, _, err := fields.String(obj.Object, "status", "phase")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		return kinds.Healthy(value == "Bound"), nil
	},
}

func mergePhase(pending string, byGravity ...string) kinds.Merge {
	return func(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		if len(members) == 0 {
			return nil
		}
		value, err := phase(members, pending, byGravity)
		if err != nil {
			return err
		}
		kinds.SetText(status, "phase", value)
		return nil
	}
}
