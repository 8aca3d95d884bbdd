package native

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

var pod = kinds.Kind{
	Replicas: func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
		requirements, err := kinds.RequirementsAt(obj, kinds.Path{"spec"})
		return 1, requirements, err
	},
	Retain:          retainPod,
	AggregateStatus: kinds.Aggregate(mergePod),
	Health:          podHealth,
	Dependencies:    kinds.DependenciesAt(kinds.Path{"spec"}),
}

// retainPod keeps what a member's scheduler and admission wrote into the pod; all of it is immutable there.
func retainPod(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	retained, err := kinds.RetainAt(
		kinds.Path{"spec", "nodeName"}, kinds.Path{"spec", "serviceAccountName"}, kinds.Path{"spec", "volumes"},
	)(desired, observed)
	if err != nil {
		return nil, err
	}
	for _, list := range []string{"containers", "initContainers"} {
		if retained, err = retainMounts(retained, observed, list); err != nil {
			return nil, err
		}
	}
	return retained, nil
}

func retainMounts(desired, observed *unstructured.Unstructured, list string) (*unstructured.Unstructured, error) {
	wanted, err := fields.Objects(desired.Object, "spec", list)
	if err != nil || len(wanted) == 0 {
		return desired, err
	}
	running, err := fields.Objects(observed.Object, "spec", list)
	if err != nil {
		return nil, err
	}
	containers := make([]any, len(wanted))
	for i, container := range wanted {
		containers[i] = container
		for _, other := range running {
			if name, ok := container["name"].(string); !ok || other["name"] != name || other["volumeMounts"] == nil {
				continue
			}
			container = maps.Clone(container)
			container["volumeMounts"] = other["volumeMounts"]
			containers[i] = container
			break
		}
	}
	root, err := fields.With(desired.Object, containers, "spec", list)
	if err != nil {
		return nil, err
	}
	return fields.Object(root), nil
}

// phase returns the most severe phase of all members. A member without a report counts as pending.
func phase(members []kinds.Member, pending string, byGravity []string) (string, error) {
	seen := map[string]bool{}
	for _, m := range members {
		value, found, err := fields.String(m.Status, "phase")
		if err != nil {
			return "", m.Failed(err)
		}
		if !found {
			value = pending
		}
		seen[value] = true
	}
	for _, value := range byGravity {
		if seen[value] {
			return value, nil
		}
	}
	return "", nil
}

func mergePod(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	if len(members) == 0 {
		return nil
	}
	value, err := phase(members, "Pending", []string{"Failed", "Pending", "Running", "Succeeded", "Unknown"})
	if err != nil {
		return err
	}
	kinds.SetText(status, "phase", value)
	for _, name := range []string{"containerStatuses", "initContainerStatuses"} {
		var all []any
		for _, m := range members {
			list, err := fields.Objects(m.Status, name)
			if err != nil {
				return m.Failed(err)
			}
			for i, container := range list {
				reduced, err := containerStatus(container, m.Cluster, len(members) > 1)
				if err != nil {
					return m.Failed(fields.Under(name+fields.Index(i), err))
				}
				all = append(all, reduced)
			}
		}
		kinds.SetList(status, name, all)
	}
	return nil
}

// containerStatus keeps what makes sense outside the member. With several members a container's name is qualified by
// the member's: the API server compares states by name and would take one member's running container for a restart
// of another's terminated one.
func containerStatus(container map[string]any, cluster string, qualify bool) (map[string]any, error) {
	name, _, err := fields.String(container, "name")
	if err != nil {
		return nil, err
	}
	if qualify {
		name = cluster + "/" + name
	}
	out := map[string]any{"name": name, "ready": container["ready"] == true, "restartCount": int64(0), "image": "", "imageID": ""}
	for _, field := range []string{"restartCount", "image", "imageID", "state"} {
		if value := container[field]; value != nil {
			out[field] = value
		}
	}
	return out, nil
}

func podHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	value, _, err := fields.String(obj.Object, "status", "phase")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	ready, _, err := kinds.Condition(obj, "Ready")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	return kinds.Healthy(value == "Succeeded" || value == "Running" && ready == "True"), nil
}
