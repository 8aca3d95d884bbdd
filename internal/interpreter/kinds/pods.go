package kinds

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

// Path is a field, such as {"spec", "template", "spec"}.
type Path []string

// ReplicasAt returns a Replicas function for a kind with a number of replicas in one field and a pod spec in another.
// A template that leaves the field out has as many replicas as unset says.
func ReplicasAt(replicas, podSpec Path, unset int32) func(*unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
	return func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
		n, found, err := fields.Count(obj.Object, replicas...)
		if err != nil {
			return 0, nil, err
		}
		if !found {
			n = unset
		}
		requirements, err := RequirementsAt(obj, podSpec)
		return n, requirements, err
	}
}

// RequirementsAt returns what pods of the spec in a field need.
func RequirementsAt(obj *unstructured.Unstructured, podSpec Path) (*workv1alpha2.ReplicaRequirements, error) {
	spec, _, err := fields.Map(obj.Object, podSpec...)
	if err != nil {
		return nil, err
	}
	namespace, _, err := fields.String(obj.Object, "metadata", "namespace")
	if err != nil {
		return nil, err
	}
	requirements, err := podspec.Requirements(spec, namespace)
	return requirements, fields.Under(strings.Join(podSpec, "."), err)
}

// ReviseAt returns a ReviseReplica function for a kind with its number of replicas in a field.
func ReviseAt(replicas Path) func(*unstructured.Unstructured, int32) (*unstructured.Unstructured, error) {
	return func(obj *unstructured.Unstructured, n int32) (*unstructured.Unstructured, error) {
		return WithInt(obj, int64(n), replicas)
	}
}

// WithInt returns the object with an integer field set.
func WithInt(obj *unstructured.Unstructured, n int64, field Path) (*unstructured.Unstructured, error) {
	if current, found, err := fields.Int(obj.Object, field...); err == nil && found && current == n {
		return obj, nil
	}
	changed, err := fields.With(obj.Object, n, field...)
	if err != nil {
		return nil, err
	}
	return fields.Object(changed), nil
}

// DependenciesAt returns a Dependencies function for a kind with pod specs in some fields.
func DependenciesAt(podSpecs ...Path) func(*unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	return func(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
		refs := podspec.References{Namespace: obj.GetNamespace()}
		for _, path := range podSpecs {
			if err := AddPodAt(&refs, obj, path); err != nil {
				return nil, err
			}
		}
		return refs.List(), nil
	}
}

// DependenciesWithClaimTemplates is DependenciesAt for a kind that makes claims itself, from the templates in
// spec.volumeClaimTemplates: those are not dependencies.
func DependenciesWithClaimTemplates(podSpec Path) func(*unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	return func(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
		refs := podspec.References{Namespace: obj.GetNamespace()}
		if err := AddPodAt(&refs, obj, podSpec); err != nil {
			return nil, err
		}
		claims, err := fields.Objects(obj.Object, "spec", "volumeClaimTemplates")
		if err != nil {
			return nil, err
		}
		for i, claim := range claims {
			name, _, err := fields.String(claim, "metadata", "name")
			if err != nil {
				return nil, fields.Under("spec.volumeClaimTemplates"+fields.Index(i), err)
			}
			refs.Remove(podspec.PersistentVolumeClaim, name)
		}
		return refs.List(), nil
	}
}

// AddPodAt adds what the pod spec in a field refers to.
func AddPodAt(refs *podspec.References, obj *unstructured.Unstructured, podSpec Path) error {
	spec, found, err := fields.Map(obj.Object, podSpec...)
	if err != nil || !found {
		return err
	}
	return fields.Under(strings.Join(podSpec, "."), refs.AddPod(spec))
}

// RetainReplicasAt returns a Retain function for workloads whose replicas may belong to a member's autoscaler.
func RetainReplicasAt(replicas Path) func(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return func(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		retain, _, err := fields.String(desired.Object, "metadata", "labels", names.RetainReplicasLabel)
		if err != nil || retain != "true" {
			return desired, err
		}
		n, found, err := fields.Int(observed.Object, replicas...)
		if err != nil || !found {
			return desired, err
		}
		return WithInt(desired, n, replicas)
	}
}

// RetainAt returns a Retain function that takes some fields over from the observed object where it has them.
func RetainAt(paths ...Path) func(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return func(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		retained := desired
		for _, path := range paths {
			value, found, err := fields.Lookup(observed.Object, path...)
			if err != nil {
				return nil, err
			}
			if !found {
				continue
			}
			root, err := fields.With(retained.Object, value, path...)
			if err != nil {
				return nil, err
			}
			retained = fields.Object(root)
		}
		return retained, nil
	}
}
