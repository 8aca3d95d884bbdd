package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resourcehelper "k8s.io/component-helpers/resource"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// Requirements returns what one pod of a spec needs of a cluster, or nil if it needs nothing in particular. The
// namespace is the one whose quota the pod counts against.
func Requirements(spec map[string]any, namespace string) (*workv1alpha2.ReplicaRequirements, error) {
	claim, err := NodeClaim(spec)
	if err != nil {
		return nil, err
	}
	requests, err := requests(spec)
	if err != nil {
		return nil, err
	}
	priority, _, err := fields.String(spec, "priorityClassName")
	if err != nil {
		return nil, err
	}
	if claim == nil && len(requests) == 0 && priority == "" {
		return nil, nil
	}
	return &workv1alpha2.ReplicaRequirements{
		NodeClaim: claim, ResourceRequest: requests, Namespace: namespace, PriorityClassName: priority,
	}, nil
}

// OfComponent drops what a component of a larger workload does not carry.
func OfComponent(r *workv1alpha2.ReplicaRequirements) *workv1alpha2.ComponentReplicaRequirements {
	if r == nil {
		return nil
	}
	return &workv1alpha2.ComponentReplicaRequirements{
		NodeClaim: r.NodeClaim, ResourceRequest: r.ResourceRequest, PriorityClassName: r.PriorityClassName,
	}
}

// NodeClaim returns what a pod spec requires of a node, or nil if any node will do.
func NodeClaim(spec map[string]any) (*workv1alpha2.NodeClaim, error) {
	claim := workv1alpha2.NodeClaim{}
	selector, _, err := fields.Strings(spec, "nodeSelector")
	if err != nil {
		return nil, err
	}
	if len(selector) > 0 {
		claim.NodeSelector = selector
	}
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	affinity, found, err := fields.Map(spec, "affinity", "nodeAffinity", required)
	if err != nil {
		return nil, err
	}
	if found {
		claim.HardNodeAffinity = &corev1.NodeSelector{}
		if err := convert(affinity, claim.HardNodeAffinity); err != nil {
			return nil, fields.Invalid(err.Error(), "affinity", "nodeAffinity", required)
		}
	}
	tolerations, err := fields.Objects(spec, "tolerations")
	if err != nil {
		return nil, err
	}
	for i, raw := range tolerations {
		var toleration corev1.Toleration
		if err := convert(raw, &toleration); err != nil {
			return nil, fields.Invalid(err.Error(), "tolerations"+fields.Index(i))
		}
		claim.Tolerations = append(claim.Tolerations, toleration)
	}
	if claim.HardNodeAffinity == nil && claim.NodeSelector == nil && claim.Tolerations == nil {
		return nil, nil
	}
	return &claim, nil
}

func convert(from map[string]any, to any) (err error) {
	// The converter panics on values that no JSON decoder produces.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return runtime.DefaultUnstructuredConverter.FromUnstructured(from, to)
}

// requests sums up a pod the way the scheduler does, so that init containers, sidecars, overhead and pod-level
// resources count as they will in the member.
func requests(spec map[string]any) (corev1.ResourceList, error) {
	pod := corev1.Pod{}
	var err error
	if pod.Spec.Containers, err = containers(spec, "containers"); err != nil {
		return nil, err
	}
	if pod.Spec.InitContainers, err = containers(spec, "initContainers"); err != nil {
		return nil, err
	}
	if pod.Spec.Overhead, err = resourceList(spec, "overhead"); err != nil {
		return nil, err
	}
	if _, found, err := fields.Map(spec, "resources"); err != nil {
		return nil, err
	} else if found {
		pod.Spec.Resources = &corev1.ResourceRequirements{}
		if pod.Spec.Resources.Requests, err = resourceList(spec, "resources", "requests"); err != nil {
			return nil, err
		}
	}
	sum := resourcehelper.PodRequests(&pod, resourcehelper.PodResourcesOptions{})
	if len(sum) == 0 {
		return nil, nil
	}
	return sum, nil
}

func containers(spec map[string]any, field string) ([]corev1.Container, error) {
	list, err := fields.Objects(spec, field)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	out := make([]corev1.Container, len(list))
	for i, raw := range list {
		at := field + fields.Index(i)
		requests, err := resourceList(raw, "resources", "requests")
		if err != nil {
			return nil, fields.Under(at, err)
		}
		limits, err := resourceList(raw, "resources", "limits")
		if err != nil {
			return nil, fields.Under(at, err)
		}
		// A member's API server does the same when the pod is created.
		for name, limit := range limits {
			if _, set := requests[name]; !set {
				if requests == nil {
					requests = corev1.ResourceList{}
				}
				requests[name] = limit
			}
		}
		out[i].Resources.Requests = requests
		restart, found, err := fields.String(raw, "restartPolicy")
		if err != nil {
			return nil, fields.Under(at, err)
		}
		if found {
			policy := corev1.ContainerRestartPolicy(restart)
			out[i].RestartPolicy = &policy
		}
	}
	return out, nil
}

func resourceList(obj map[string]any, path ...string) (corev1.ResourceList, error) {
	raw, found, err := fields.Map(obj, path...)
	if err != nil || !found || len(raw) == 0 {
		return nil, err
	}
	list := make(corev1.ResourceList, len(raw))
	for name, value := range raw {
		quantity, err := Quantity(value)
		if err != nil {
			return nil, fields.Invalid(err.Error(), append(append([]string(nil), path...), name)...)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}
