package adopt

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// Relations know which objects of a namespace belong to the objects that are adopted.
type Relations struct {
	interpreter Interpreter
	members     map[Named]bool
	pods        map[string]labels.Set // labels of pod templates
	shared      map[schema.GroupResource]map[string]bool
}

// Named identifies an object of a namespace. Its version does not matter.
type Named struct {
	schema.GroupKind
	Name string
}

// Autoscaler is the kind of autoscalers.
var Autoscaler = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}

// ScaleTarget returns what an autoscaler scales.
func ScaleTarget(autoscaler *unstructured.Unstructured) (Named, bool) {
	reference, _, err := fields.Strings(autoscaler.Object, "spec", "scaleTargetRef")
	if err != nil || reference["kind"] == "" || reference["name"] == "" {
		return Named{}, false
	}
	return Named{schema.FromAPIVersionAndKind(reference["apiVersion"], reference["kind"]).GroupKind(), reference["name"]}, true
}

// NewRelations returns relations without any object.
func NewRelations(interpreter Interpreter) *Relations {
	return &Relations{interpreter: interpreter, members: map[Named]bool{}, pods: map[string]labels.Set{}, shared: map[schema.GroupResource]map[string]bool{}}
}

// Add records an object that is adopted, and what it refers to.
func (r *Relations) Add(ctx context.Context, obj *unstructured.Unstructured) error {
	r.members[Named{obj.GroupVersionKind().GroupKind(), obj.GetName()}] = true
	references, err := r.interpreter.Dependencies(ctx, obj)
	if err != nil {
		return err
	}
	for _, reference := range references {
		if reference.Name != "" && (reference.Namespace == "" || reference.Namespace == obj.GetNamespace()) {
			r.members[Named{schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind(), reference.Name}] = true
		}
	}
	r.addShared(obj)
	if pod, _, err := fields.Strings(obj.Object, "spec", "template", "metadata", "labels"); err == nil && len(pod) > 0 {
		r.pods[labels.Set(pod).String()] = pod
	}
	return nil
}

// sharedReferences are the fields by which objects refer to cluster-scoped ones.
var sharedReferences = []struct {
	schema.GroupResource
	path []string
}{
	{schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, []string{"spec", "template", "spec", "priorityClassName"}},
	{schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, []string{"spec", "jobTemplate", "spec", "template", "spec", "priorityClassName"}},
	{schema.GroupResource{Group: "node.k8s.io", Resource: "runtimeclasses"}, []string{"spec", "template", "spec", "runtimeClassName"}},
	{schema.GroupResource{Group: "node.k8s.io", Resource: "runtimeclasses"}, []string{"spec", "jobTemplate", "spec", "template", "spec", "runtimeClassName"}},
	{schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, []string{"spec", "storageClassName"}},
	{schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"}, []string{"spec", "ingressClassName"}},
}

// addShared records the cluster-scoped objects that an object refers to.
func (r *Relations) addShared(obj *unstructured.Unstructured) {
	add := func(resource schema.GroupResource, name string) {
		if r.shared[resource] == nil {
			r.shared[resource] = map[string]bool{}
		}
		r.shared[resource][name] = true
	}
	for _, reference := range sharedReferences {
		if name, _, err := unstructured.NestedString(obj.Object, reference.path...); err == nil && name != "" {
			add(reference.GroupResource, name)
		}
	}
	if role, _, err := fields.Strings(obj.Object, "roleRef"); err == nil && role["kind"] == "ClusterRole" {
		add(schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}, role["name"])
	}
}

// Shared returns the names of the cluster-scoped objects of a kind that added objects refer to, sorted.
func (r *Relations) Shared(resource schema.GroupResource) []string {
	return slices.Sorted(maps.Keys(r.shared[resource]))
}

// Has reports whether an object was added or an added object refers to it.
func (r *Relations) Has(kind schema.GroupKind, name string) bool { return r.members[Named{kind, name}] }

// Serves reports whether an object belongs to added ones: they refer to it, or it is a Service or disruption budget of
// their pods, or their autoscaler, or it refers to what was added.
func (r *Relations) Serves(ctx context.Context, obj *unstructured.Unstructured) bool {
	gk := obj.GroupVersionKind().GroupKind()
	if r.Has(gk, obj.GetName()) {
		return true
	}
	switch gk {
	case schema.GroupKind{Kind: "Service"}:
		selector, _, err := fields.Strings(obj.Object, "spec", "selector")
		return err == nil && len(selector) > 0 && r.selectsPods(labels.SelectorFromSet(selector))
	case schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}:
		text, _, err := fields.Map(obj.Object, "spec", "selector")
		if err != nil {
			return false
		}
		parsed := &metav1.LabelSelector{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(text, parsed); err != nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(parsed)
		return err == nil && r.selectsPods(selector)
	case Autoscaler:
		target, ok := ScaleTarget(obj)
		return ok && r.members[target]
	}
	references, err := r.interpreter.Dependencies(ctx, obj)
	if err != nil {
		return false
	}
	for _, reference := range references {
		if r.Has(schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind(), reference.Name) {
			return true
		}
	}
	return false
}

func (r *Relations) selectsPods(selector labels.Selector) bool {
	for _, pod := range r.pods {
		if selector.Matches(pod) {
			return true
		}
	}
	return false
}
