// Package rights finds the parts of a manifest that grant rights in a member.
//
// Engines may write any Role in members. So the API server of a member cannot refuse what the author of a change may not grant: the federation must.
// The hub checked the author of a template. Nothing that changes a manifest on its way to a member, such as an override or an interpreter, may change
// what it grants.
package rights

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Rights are the parts of an object that decide what it grants, by their path. They are empty for an object that grants nothing.
type Rights map[string]any

// accessGroups are the API groups whose objects grant rights by themselves. The second is OpenShift's view of the first.
var accessGroups = []string{"rbac.authorization.k8s.io", "authorization.openshift.io"}

// The types of Secrets that are credentials for the API server of the member.
const (
	serviceAccountToken     = "kubernetes.io/service-account-token"
	bootstrapToken          = "bootstrap.kubernetes.io/token"
	serviceAccountNameEntry = "kubernetes.io/service-account.name"
)

// Of returns the rights that an object grants. Later changes of the object do not affect them.
func Of(obj *unstructured.Unstructured) Rights {
	switch gvk := obj.GroupVersionKind(); {
	case slices.Contains(accessGroups, gvk.Group):
		all := content(obj)
		if gvk.Kind == "ClusterRole" { // another ClusterRole may aggregate it by its labels
			for key, value := range obj.GetLabels() {
				all["metadata.labels["+key+"]"] = value
			}
		}
		return all
	case gvk.Group == "" && gvk.Kind == "Secret":
		return ofSecret(obj)
	default:
		return nil
	}
}

func ofSecret(obj *unstructured.Unstructured) Rights {
	switch kind, _, _ := unstructured.NestedString(obj.Object, "type"); kind {
	case serviceAccountToken:
		return Rights{"type": kind, "metadata.annotations[" + serviceAccountNameEntry + "]": obj.GetAnnotations()[serviceAccountNameEntry]}
	case bootstrapToken:
		return content(obj)
	default:
		return nil
	}
}

// content returns everything but the metadata. A field that is empty counts as absent; what is in it is compared exactly, because an empty selector in
// an aggregationRule selects everything.
func content(obj *unstructured.Unstructured) Rights {
	all := Rights{}
	for field, value := range obj.Object {
		if field != "metadata" && !empty(value) {
			all[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	return all
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}

// Changed returns the first path at which the rights are those of none of the sources, and whether there is one.
func (r Rights) Changed(sources ...Rights) (string, bool) {
	paths := slices.Collect(maps.Keys(r))
	for _, source := range sources {
		paths = slices.AppendSeq(paths, maps.Keys(source))
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		same := func(source Rights) bool { return reflect.DeepEqual(r[path], source[path]) }
		if !slices.ContainsFunc(sources, same) {
			return path, true
		}
	}
	return "", false
}

// Check returns an error if what an object grants comes from none of the sources. by is what changed the object.
func Check(by string, obj *unstructured.Unstructured, sources ...*unstructured.Unstructured) error {
	granted := Of(obj)
	from := make([]Rights, len(sources))
	for i, source := range sources {
		from[i] = Of(source)
	}
	if path, changed := granted.Changed(from...); changed {
		return fmt.Errorf("%s changes %s, but only the template decides what a %s grants", by, path, obj.GetKind())
	}
	return nil
}
