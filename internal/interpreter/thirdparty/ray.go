package thirdparty

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var rayClusterStatus = []string{
	"state", "stateTransitionTimes", "conditions", "desiredCPU", "desiredGPU", "desiredMemory", "desiredTPU",
	"desiredWorkerReplicas", "endpoints", "head", "lastUpdateTime", "maxWorkerReplicas", "minWorkerReplicas",
	"observedGeneration", "readyWorkerReplicas", "availableWorkerReplicas", "reason",
}

var (
	rayClusterSpec = kinds.Path{"spec"}
	rayJobSpec     = kinds.Path{"spec", "rayClusterSpec"}
	rayServiceSpec = kinds.Path{"spec", "rayClusterConfig"}
)

var rayCluster = kinds.Kind{
	Replicas: func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
		list, err := rayComponents(rayClusterSpec)(obj)
		if err != nil {
			return 0, nil, err
		}
		n, largest := total(obj, list)
		return n, largest, nil
	},
	Components: rayComponents(rayClusterSpec),
	AggregateStatus: kinds.Aggregate(func(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		if anyReported(members) {
			last(status, members, rayClusterStatus...)
		}
		return nil
	}),
	ReflectStatus: kinds.ReflectFields(rayClusterStatus...),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		state, _, err := fields.String(obj.Object, "status", "state")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		return kinds.Healthy(state == "ready"), nil
	},
	Dependencies: rayDependencies(rayClusterSpec),
}

var rayJob = kinds.Kind{
	Components:      rayComponents(rayJobSpec),
	AggregateStatus: kinds.Aggregate(adoptOnly(mergeRayJob)),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		deployment, _, err := fields.String(obj.Object, "status", "jobDeploymentStatus")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		result, _, err := fields.String(obj.Object, "status", "jobStatus")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		return kinds.Healthy(deployment == "Running" || deployment == "Complete" && result == "SUCCEEDED"), nil
	},
	Dependencies: rayDependencies(rayJobSpec, kinds.Path{"spec", "submitterPodTemplate", "spec"}),
}

var rayService = kinds.Kind{
	Components:      rayComponents(rayServiceSpec),
	AggregateStatus: kinds.Aggregate(adoptOnly(mergeRayService)),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		ready, _, err := kinds.Condition(obj, "Ready")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		return kinds.Healthy(ready == "True"), nil
	},
	Dependencies: rayDependencies(rayServiceSpec),
}

// rayParts are the head, of which there is one, and the groups of workers.
func rayParts(obj *unstructured.Unstructured, cluster kinds.Path) ([]part, error) {
	spec, found, err := fields.Map(obj.Object, cluster...)
	if err != nil || !found {
		return nil, err
	}
	at := strings.Join(cluster, ".")
	var parts []part
	head, found, err := fields.Map(spec, "headGroupSpec")
	if err != nil {
		return nil, fields.Under(at, err)
	}
	if found {
		p, err := partOf("ray-head", at+".headGroupSpec", head, 1)
		if err != nil {
			return nil, err
		}
		p.replicas = 1
		parts = append(parts, p)
	}
	groups, err := fields.Objects(spec, "workerGroupSpecs")
	if err != nil {
		return nil, fields.Under(at, err)
	}
	for i, group := range groups {
		where := at + ".workerGroupSpecs" + fields.Index(i)
		name, _, err := fields.String(group, "groupName")
		if err != nil {
			return nil, fields.Under(where, err)
		}
		if name == "" {
			name = "worker-" + strconv.Itoa(i+1)
		}
		p, err := partOf(name, where, group, 0)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func rayComponents(cluster kinds.Path) func(*unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	return func(obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
		parts, err := rayParts(obj, cluster)
		if err != nil {
			return nil, err
		}
		return components(parts)
	}
}

func rayDependencies(cluster kinds.Path, pods ...kinds.Path) func(*unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	return func(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
		refs := podspec.References{Namespace: obj.GetNamespace()}
		parts, err := rayParts(obj, cluster)
		if err != nil {
			return nil, err
		}
		if err := addParts(&refs, parts); err != nil {
			return nil, err
		}
		for _, path := range pods {
			if err := kinds.AddPodAt(&refs, obj, path); err != nil {
				return nil, err
			}
		}
		return refs.List(), nil
	}
}

var (
	rayDeploymentOrder = []string{"Initializing", "Waiting", "Suspending", "Suspended", "Retrying", "Running", "Complete", "ValidationFailed", "Failed"}
	rayJobOrder        = []string{"PENDING", "RUNNING", "SUCCEEDED", "STOPPED", "FAILED"}
)

func mergeRayJob(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	if err := worst(status, members, "jobStatus", rayJobOrder); err != nil {
		return err
	}
	if err := worst(status, members, "jobDeploymentStatus", rayDeploymentOrder); err != nil {
		return err
	}
	// The explanation belongs to the state that was chosen.
	delete(status, "reason")
	delete(status, "message")
	for _, m := range members {
		if state := m.Status["jobDeploymentStatus"]; state != nil && state == status["jobDeploymentStatus"] {
			last(status, []kinds.Member{m}, "reason", "message")
			break
		}
	}
	return nil
}

func mergeRayService(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	if err := kinds.Sum(status, members, "numServeEndpoints"); err != nil {
		return err
	}
	if err := conditionsByType(status, members, rayCondition); err != nil {
		return err
	}
	if err := latest(status, members, "lastUpdateTime"); err != nil {
		return err
	}
	last(status, members, "observedGeneration", "activeServiceStatus", "pendingServiceStatus")
	// The service as a whole runs where every member says so.
	kinds.SetText(status, "serviceStatus", "Running")
	for _, m := range members {
		if m.Status["serviceStatus"] != "Running" {
			delete(status, "serviceStatus")
		}
	}
	return mergeRayApplications(status, members)
}

// rayCondition prefers the member that is not ready, and otherwise the latest news.
func rayCondition(a, b map[string]any) bool {
	if a["type"] == "Ready" && a["status"] != b["status"] {
		return a["status"] != "True"
	}
	return newer(a, b)
}

var rayApplicationOrder = []string{"RUNNING", "NOT_STARTED", "DELETING", "DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED"}

// mergeRayApplications lists each application once, in its most severe state.
func mergeRayApplications(status map[string]any, members []kinds.Member) error {
	gravest := map[string]any{}
	gravity := map[string]int{}
	for _, m := range members {
		applications, _, err := fields.Map(m.Status, "activeServiceStatus", "applicationStatuses")
		if err != nil {
			return m.Failed(err)
		}
		for name := range applications {
			state, _, err := fields.String(applications, name, "status")
			if err != nil {
				return m.Failed(fields.Under("activeServiceStatus.applicationStatuses", err))
			}
			at := 0
			for i, known := range rayApplicationOrder {
				if known == state {
					at = i
				}
			}
			if before, seen := gravity[name]; !seen || at > before {
				gravest[name], gravity[name] = applications[name], at
			}
		}
	}
	if len(gravest) == 0 {
		return nil
	}
	changed, err := fields.With(status, gravest, "activeServiceStatus", "applicationStatuses")
	if err != nil {
		return err
	}
	status["activeServiceStatus"] = changed["activeServiceStatus"]
	return nil
}
