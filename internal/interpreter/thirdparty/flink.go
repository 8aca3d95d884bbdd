package thirdparty

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var flinkStatus = []string{
	"clusterInfo", "error", "jobManagerDeploymentStatus", "jobStatus", "lifecycleState", "observedGeneration",
	"reconciliationStatus", "taskManager",
}

var flinkDeployment = kinds.Kind{
	Replicas: func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
		list, err := flinkComponents(obj)
		if err != nil {
			return 0, nil, err
		}
		n, largest := total(obj, list)
		return n, largest, nil
	},
	Components: flinkComponents,
	AggregateStatus: kinds.Aggregate(func(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		if anyReported(members) {
			last(status, members, flinkStatus...)
		}
		return nil
	}),
	ReflectStatus: kinds.ReflectFields(flinkStatus...),
	Health:        flinkHealth,
	Dependencies:  kinds.DependenciesAt(kinds.Path{"spec", "podTemplate", "spec"}, kinds.Path{"spec", "jobManager", "podTemplate", "spec"}, kinds.Path{"spec", "taskManager", "podTemplate", "spec"}),
}

// flinkHealth: a job that is still coming up is unhealthy, so that it may be moved, unless it fails for a reason that
// would follow it to any cluster.
func flinkHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	state, _, err := fields.String(obj.Object, "status", "jobStatus", "state")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	switch state {
	case "", "CREATED", "INITIALIZING", "RECONCILING":
	default:
		return workv1alpha2.ResourceHealthy, nil
	}
	problem, _, err := fields.String(obj.Object, "status", "error")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	manager, _, err := fields.String(obj.Object, "status", "jobManagerDeploymentStatus")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	return kinds.Healthy(problem != "" || state != "" && manager == "ERROR"), nil
}

func flinkComponents(obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	managers, found, err := fields.Count(obj.Object, "spec", "jobManager", "replicas")
	if err != nil {
		return nil, err
	}
	if !found {
		managers = 1
	}
	tasks, err := taskManagers(obj)
	if err != nil {
		return nil, err
	}
	list := []workv1alpha2.Component{{Name: "jobmanager", Replicas: managers}, {Name: "taskmanager", Replicas: tasks}}
	for i, field := range []string{"jobManager", "taskManager"} {
		if list[i].ReplicaRequirements, err = flinkRequirements(obj, field); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// taskManagers is set, or follows from how many slots the job needs and a task manager has.
func taskManagers(obj *unstructured.Unstructured) (int32, error) {
	if n, found, err := fields.Count(obj.Object, "spec", "taskManager", "replicas"); err != nil || found {
		return n, err
	}
	parallelism, found, err := fields.Count(obj.Object, "spec", "job", "parallelism")
	if err != nil || !found {
		return 1, err
	}
	value, _, err := fields.Lookup(obj.Object, "spec", "flinkConfiguration", "taskmanager.numberOfTaskSlots")
	if err != nil {
		return 0, err
	}
	slots, ok := fields.AsInt(value)
	if text, isText := value.(string); isText {
		slots, err = strconv.ParseInt(text, 10, 32)
		ok = err == nil
	}
	if !ok || slots <= 0 {
		return 1, nil
	}
	return int32((int64(parallelism) + slots - 1) / slots), nil
}

func flinkRequirements(obj *unstructured.Unstructured, field string) (*workv1alpha2.ComponentReplicaRequirements, error) {
	requests := corev1.ResourceList{}
	for _, name := range []string{"cpu", "memory"} {
		value, found, err := fields.Lookup(obj.Object, "spec", field, "resource", name)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if name == "memory" {
			// As in Karmada, Kubernetes' notation comes first: 100m are milli-bytes, although Flink reads mebibytes.
			if quantity, err := podspec.Quantity(value); err == nil {
				requests[corev1.ResourceMemory] = quantity
				continue
			}
			bytes, err := memory(value, "spec", field, "resource", name)
			if err != nil {
				return nil, err
			}
			requests[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
			continue
		}
		cores, err := podspec.Quantity(value)
		if err != nil {
			return nil, fields.Invalid(err.Error(), "spec", field, "resource", name)
		}
		requests[corev1.ResourceCPU] = cores
	}
	spec, _, err := fields.Map(obj.Object, "spec", "podTemplate", "spec")
	if err != nil {
		return nil, err
	}
	claim, err := podspec.NodeClaim(spec)
	if err != nil {
		return nil, fields.Under("spec.podTemplate.spec", err)
	}
	priority, _, err := fields.String(spec, "priorityClassName")
	if err != nil {
		return nil, fields.Under("spec.podTemplate.spec", err)
	}
	if len(requests) == 0 && claim == nil && priority == "" {
		return nil, nil
	}
	return &workv1alpha2.ComponentReplicaRequirements{NodeClaim: claim, ResourceRequest: requests, PriorityClassName: priority}, nil
}
