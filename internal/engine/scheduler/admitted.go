package scheduler

import (
	"encoding/json"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Requirements are what the replicas of a binding ask for.
type Requirements struct {
	Replica    *workv1alpha2.ReplicaRequirements `json:"replica,omitempty"`
	Components []workv1alpha2.Component          `json:"components,omitempty"`
}

// Admitted returns the requirements that the guards have admitted for the clusters of a binding: those of its spec, unless they were refused.
func Admitted(binding *workv1alpha2.ResourceBinding) Requirements {
	if text := binding.Annotations[names.AdmittedRequirementsAnnotation]; text != "" {
		var r Requirements
		if json.Unmarshal([]byte(text), &r) == nil {
			return r
		}
	}
	return Requirements{binding.Spec.ReplicaRequirements, binding.Spec.Components}
}

// Held reports whether guards have refused the requirements in the spec of a binding. Its copies in clusters stay as they are.
func Held(binding *workv1alpha2.ResourceBinding) bool {
	return binding.Annotations[names.AdmittedRequirementsAnnotation] != ""
}

// Several returns the components of a template with several pod templates. One with a single component is described by its replicas alone.
func Several(replicas int32, components []workv1alpha2.Component) []workv1alpha2.Component {
	if len(components) > 1 || len(components) == 1 && replicas == 0 {
		return components
	}
	return nil
}

// hold keeps the requirements that were admitted before, next to the refused ones in the spec. Without it, the next attempt would compare the refused
// requirements with themselves, find no growth, and admit them.
func hold(before, after *workv1alpha2.ResourceBinding) error {
	delete(after.Annotations, names.AdmittedRequirementsAnnotation)
	if before == nil || len(after.Spec.Clusters) == 0 {
		return nil
	}
	admitted := Admitted(before)
	if apiequality.Semantic.DeepEqual(admitted, Admitted(after)) {
		return nil
	}
	text, err := json.Marshal(admitted)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, names.AdmittedRequirementsAnnotation, string(text))
	return nil
}

// admitted removes the mark of an earlier refusal.
func admitted(after *workv1alpha2.ResourceBinding) {
	delete(after.Annotations, names.AdmittedRequirementsAnnotation)
}
