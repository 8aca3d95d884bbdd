package thirdparty

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var sparkStatus = []string{
	"applicationState", "driverInfo", "executorState", "sparkApplicationId", "completionTime", "lastSubmissionAttemptTime",
	"submissionAttempts", "executionAttempts", "submissionID", "terminationTime",
}

var sparkApplication = kinds.Kind{
	Components:      sparkComponents,
	AggregateStatus: kinds.Aggregate(adoptOnly(mergeSpark)),
	ReflectStatus:   kinds.ReflectFields(sparkStatus...),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		state, _, err := fields.String(obj.Object, "status", "applicationState", "state")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		return kinds.Healthy(state != "" && state != "FAILED"), nil
	},
	Dependencies: sparkDependencies,
}

// sparkOrder lists states from harmless to severe.
var sparkOrder = []string{
	"UNKNOWN", "SUBMITTED", "PENDING_RERUN", "COMPLETED", "SUSPENDING", "SUSPENDED", "RESUMING", "SUCCEEDING", "RUNNING",
	"INVALIDATING", "FAILING", "SUBMISSION_FAILED", "FAILED",
}

func mergeSpark(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	states := make([]kinds.Member, len(members))
	for i, m := range members {
		state, _, err := fields.Map(m.Status, "applicationState")
		if err != nil {
			return m.Failed(err)
		}
		states[i] = kinds.Member{Cluster: m.Cluster, Status: state}
	}
	chosen := map[string]any{}
	if err := worst(chosen, states, "state", sparkOrder); err != nil {
		return err
	}
	for _, s := range states {
		if s.Status != nil && s.Status["state"] == chosen["state"] {
			status["applicationState"] = s.Status
			break
		}
	}
	if err := kinds.Sum(status, members, "executionAttempts", "submissionAttempts"); err != nil {
		return err
	}
	for _, name := range []string{"lastSubmissionAttemptTime", "terminationTime"} {
		if err := latest(status, members, name); err != nil {
			return err
		}
	}
	return nil
}

const (
	minimumSparkOverhead    = 384 << 20
	jvmOverheadFactor       = 0.1
	otherOverheadFactor     = 0.4
	defaultSparkMemory      = "1g"
	maximumSparkRequestSize = math.MaxInt64 / 4
)

func sparkComponents(obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	factor, err := overheadFactor(obj)
	if err != nil {
		return nil, err
	}
	executors, err := sparkExecutors(obj)
	if err != nil {
		return nil, err
	}
	list := []workv1alpha2.Component{{Name: "driver", Replicas: 1}, {Name: "executor", Replicas: executors}}
	for i := range list {
		if list[i].ReplicaRequirements, err = sparkRequirements(obj, list[i].Name, factor); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// overheadFactor is the share of memory that Spark adds for what is not on the heap.
func overheadFactor(obj *unstructured.Unstructured) (float64, error) {
	text, found, err := fields.String(obj.Object, "spec", "memoryOverheadFactor")
	if err != nil {
		return 0, err
	}
	if found && text != "" {
		factor, err := strconv.ParseFloat(text, 64)
		if err != nil || factor < 0 || factor > 100 {
			return 0, fields.Invalid("expected a factor such as 0.1", "spec", "memoryOverheadFactor")
		}
		return factor, nil
	}
	language, _, err := fields.String(obj.Object, "spec", "type")
	if err != nil {
		return 0, err
	}
	if strings.EqualFold(language, "Java") || strings.EqualFold(language, "Scala") {
		return jvmOverheadFactor, nil
	}
	return otherOverheadFactor, nil
}

func sparkExecutors(obj *unstructured.Unstructured) (int32, error) {
	n, found, err := fields.Count(obj.Object, "spec", "executor", "instances")
	if err != nil {
		return 0, err
	}
	if !found {
		n = 1
	}
	dynamic, _, err := fields.Bool(obj.Object, "spec", "dynamicAllocation", "enabled")
	if err != nil || !dynamic {
		return n, err
	}
	for _, name := range []string{"initialExecutors", "minExecutors"} {
		least, _, err := fields.Count(obj.Object, "spec", "dynamicAllocation", name)
		if err != nil {
			return 0, err
		}
		n = max(n, least)
	}
	return n, nil
}

func sparkRequirements(obj *unstructured.Unstructured, role string, factor float64) (*workv1alpha2.ComponentReplicaRequirements, error) {
	at := "spec." + role
	spec, _, err := fields.Map(obj.Object, "spec", role)
	if err != nil {
		return nil, err
	}
	requests := corev1.ResourceList{}
	for _, name := range []string{"coreRequest", "cores"} {
		if value := spec[name]; value != nil && requests.Cpu().IsZero() {
			cores, err := podspec.Quantity(value)
			if err != nil {
				return nil, fields.Invalid(err.Error(), at, name)
			}
			requests[corev1.ResourceCPU] = cores
		}
	}
	bytes, err := sparkMemory(spec, at, factor)
	if err != nil {
		return nil, err
	}
	requests[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	gpu, _, err := fields.String(spec, "gpu", "name")
	if err != nil {
		return nil, fields.Under(at, err)
	}
	count, _, err := fields.Count(spec, "gpu", "quantity")
	if err != nil {
		return nil, fields.Under(at, err)
	}
	if gpu != "" && count > 0 {
		requests[corev1.ResourceName(gpu)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	claim, err := podspec.NodeClaim(spec)
	if err != nil {
		return nil, fields.Under(at, err)
	}
	priority, _, err := fields.String(spec, "priorityClassName")
	if err != nil {
		return nil, fields.Under(at, err)
	}
	return &workv1alpha2.ComponentReplicaRequirements{NodeClaim: claim, ResourceRequest: requests, PriorityClassName: priority}, nil
}

// sparkMemory is the heap and what Spark adds to it: an amount or a share, but never less than its minimum.
func sparkMemory(spec map[string]any, at string, factor float64) (int64, error) {
	var heap any = defaultSparkMemory
	if value := spec["memory"]; value != nil {
		heap = value
	}
	bytes, err := memory(heap, at, "memory")
	if err != nil {
		return 0, err
	}
	overhead := int64(math.Max(float64(bytes)*factor, minimumSparkOverhead))
	if value := spec["memoryOverhead"]; value != nil {
		if overhead, err = memory(value, at, "memoryOverhead"); err != nil {
			return 0, err
		}
	}
	if bytes < 0 || bytes > maximumSparkRequestSize || overhead < 0 || overhead > maximumSparkRequestSize {
		return 0, fields.Invalid(fmt.Sprintf("%d bytes are not an amount of memory", bytes), at, "memory")
	}
	const mebibyte = 1 << 20
	return (bytes + overhead + mebibyte - 1) / mebibyte * mebibyte, nil
}

func sparkDependencies(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	refs := podspec.References{Namespace: obj.GetNamespace()}
	for _, name := range []string{"sparkConfigMap", "hadoopConfigMap"} {
		if err := refs.AddField(podspec.ConfigMap, obj.Object, "spec", name); err != nil {
			return nil, err
		}
	}
	volumes, _, err := fields.Slice(obj.Object, "spec", "volumes")
	if err != nil {
		return nil, err
	}
	if err := refs.AddPod(map[string]any{"volumes": volumes}); err != nil {
		return nil, fields.Under("spec", err)
	}
	pullSecrets, _, err := fields.Slice(obj.Object, "spec", "imagePullSecrets")
	if err != nil {
		return nil, err
	}
	for _, secret := range pullSecrets {
		name, _ := secret.(string)
		refs.Add(podspec.Secret, name)
	}
	for _, role := range []string{"driver", "executor"} {
		spec, found, err := fields.Map(obj.Object, "spec", role)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if err := addSparkRole(&refs, spec); err != nil {
			return nil, fields.Under("spec."+role, err)
		}
	}
	return refs.List(), nil
}

// addSparkRole reads a role as a pod spec whose container's fields are its own, and the files it mounts by name.
func addSparkRole(refs *podspec.References, spec map[string]any) error {
	pod := map[string]any{
		"containers": []any{map[string]any{"env": spec["env"], "envFrom": spec["envFrom"]}}, "serviceAccount": spec["serviceAccount"],
		"initContainers": spec["initContainers"],
	}
	if err := refs.AddPod(pod); err != nil {
		return err
	}
	for field, kind := range map[string]podspec.Kind{"configMaps": podspec.ConfigMap, "secrets": podspec.Secret} {
		list, err := fields.Objects(spec, field)
		if err != nil {
			return err
		}
		for i, entry := range list {
			if err := refs.AddField(kind, entry, "name"); err != nil {
				return fields.Under(field+fields.Index(i), err)
			}
		}
	}
	return nil
}
