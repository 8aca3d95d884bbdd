package thirdparty

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

// part is one pod template of a workload and how many pods it makes.
type part struct {
	name     string
	replicas int32
	// at is where the pod spec was found, for errors.
	at   string
	spec map[string]any
}

// partOf reads a part from an object that has replicas and a pod template.
func partOf(name, at string, obj map[string]any, unset int32) (part, error) {
	replicas, found, err := fields.Count(obj, "replicas")
	if err != nil {
		return part{}, fields.Under(at, err)
	}
	if !found {
		replicas = unset
	}
	spec, _, err := fields.Map(obj, "template", "spec")
	if err != nil {
		return part{}, fields.Under(at, err)
	}
	return part{name: name, replicas: replicas, at: at + ".template.spec", spec: spec}, nil
}

func components(parts []part) ([]workv1alpha2.Component, error) {
	list := make([]workv1alpha2.Component, len(parts))
	for i, p := range parts {
		requirements, err := podspec.Requirements(p.spec, "")
		if err != nil {
			return nil, fields.Under(p.at, err)
		}
		list[i] = workv1alpha2.Component{Name: p.name, Replicas: p.replicas, ReplicaRequirements: podspec.OfComponent(requirements)}
	}
	return list, nil
}

func addParts(refs *podspec.References, parts []part) error {
	for _, p := range parts {
		if err := refs.AddPod(p.spec); err != nil {
			return fields.Under(p.at, err)
		}
	}
	return nil
}

// total describes a workload of several parts as one: the sum of their replicas, each with the largest
// requirements. Schedulers that support components are more precise.
func total(obj *unstructured.Unstructured, list []workv1alpha2.Component) (int32, *workv1alpha2.ReplicaRequirements) {
	replicas := int32(0)
	var largest *workv1alpha2.ReplicaRequirements
	for _, c := range list {
		replicas += c.Replicas
		r := c.ReplicaRequirements
		if r == nil {
			continue
		}
		if largest == nil {
			largest = &workv1alpha2.ReplicaRequirements{Namespace: obj.GetNamespace(), NodeClaim: r.NodeClaim, PriorityClassName: r.PriorityClassName}
		}
		for name, quantity := range r.ResourceRequest {
			if current, set := largest.ResourceRequest[name]; !set || quantity.Cmp(current) > 0 {
				if largest.ResourceRequest == nil {
					largest.ResourceRequest = map[corev1.ResourceName]resource.Quantity{}
				}
				largest.ResourceRequest[name] = quantity
			}
		}
	}
	return replicas, largest
}

// memory returns the bytes that a size in the notation of the Java world stands for: 512m are mebibytes there.
// Kubernetes' own notation is understood too.
func memory(value any, path ...string) (int64, error) {
	text, ok := value.(string)
	if !ok {
		quantity, err := podspec.Quantity(value)
		if err != nil {
			return 0, fields.Invalid(err.Error(), path...)
		}
		return quantity.Value(), nil
	}
	lower := strings.ToLower(strings.ReplaceAll(text, " ", ""))
	for _, unit := range []struct {
		suffixes string
		binary   string
	}{
		{"k kb kibibytes", "Ki"}, {"m mb mebibytes", "Mi"}, {"g gb gibibytes", "Gi"}, {"t tb tebibytes", "Ti"}, {"b bytes", ""},
	} {
		digits := strings.TrimRight(lower, "abcdefghijklmnopqrstuvwxyz")
		for _, suffix := range strings.Fields(unit.suffixes) {
			if lower == digits+suffix {
				lower, text = digits, digits+unit.binary
			}
		}
	}
	quantity, err := podspec.Quantity(text)
	if err != nil {
		return 0, fields.Invalid(err.Error(), path...)
	}
	return quantity.Value(), nil
}
