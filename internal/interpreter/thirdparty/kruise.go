package thirdparty

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var cloneSetStatus = kinds.NewCounted(
	[]string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "updatedReadyReplicas", "updatedAvailableReplicas", "expectedUpdatedReplicas"},
	"updateRevision", "currentRevision", "labelSelector")

var cloneSet = kinds.Kind{
	Replicas:        kinds.ReplicasAt(specReplicas, podTemplate, 1),
	ReviseReplica:   kinds.ReviseAt(specReplicas),
	Retain:          kinds.RetainReplicasAt(specReplicas),
	AggregateStatus: cloneSetStatus.Aggregate,
	ReflectStatus:   cloneSetStatus.Reflect,
	Health:          cloneSetHealth,
	Dependencies:    kinds.DependenciesWithClaimTemplates(podTemplate),
}

// cloneSetHealth allows for a partition: the controller tells how many pods it means to update.
func cloneSetHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	n := kinds.NumbersOf(obj)
	want := n.At("spec", "replicas")
	if expected, found := n.Maybe("status", "expectedUpdatedReplicas"); found {
		want = min(want, expected)
	}
	updated := n.At("status", "updatedReplicas")
	return n.Verdict(n.Observed() && updated >= want && n.At("status", "availableReplicas") >= updated)
}

var advancedStatefulSetStatus = kinds.NewCounted(
	[]string{"replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas", "updatedReadyReplicas", "updatedAvailableReplicas"},
	"updateRevision", "currentRevision", "labelSelector")

var advancedStatefulSet = kinds.Kind{
	Replicas:        kinds.ReplicasAt(specReplicas, podTemplate, 1),
	ReviseReplica:   kinds.ReviseAt(specReplicas),
	Retain:          kinds.RetainReplicasAt(specReplicas),
	AggregateStatus: advancedStatefulSetStatus.Aggregate,
	ReflectStatus:   advancedStatefulSetStatus.Reflect,
	Health:          kinds.RolledOutAbovePartition,
	Dependencies:    kinds.DependenciesWithClaimTemplates(podTemplate),
}

var advancedDaemonSetStatus = kinds.NewCounted([]string{
	"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "updatedNumberScheduled",
	"numberAvailable", "numberUnavailable",
}, "daemonSetHash")

var advancedDaemonSet = kinds.Kind{
	AggregateStatus: advancedDaemonSetStatus.Aggregate,
	ReflectStatus:   advancedDaemonSetStatus.Reflect,
	Health:          kinds.RolledOutEverywhere,
	Dependencies:    kinds.DependenciesAt(podTemplate),
}

var unitedCounters = []string{
	"replicas", "readyReplicas", "updatedReplicas", "updatedReadyReplicas", "availableReplicas", "unavailableReplicas",
}

// unitedTemplates are the places of a UnitedDeployment's pod spec: it wraps one of four kinds of workload.
var unitedTemplates = []kinds.Path{
	{"spec", "template", "statefulSetTemplate", "spec", "template", "spec"},
	{"spec", "template", "advancedStatefulSetTemplate", "spec", "template", "spec"},
	{"spec", "template", "cloneSetTemplate", "spec", "template", "spec"},
	{"spec", "template", "deploymentTemplate", "spec", "template", "spec"},
}

var unitedDeployment = kinds.Kind{
	Replicas: func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
		for _, path := range unitedTemplates {
			if _, found, err := fields.Map(obj.Object, path...); err != nil {
				return 0, nil, err
			} else if found {
				return kinds.ReplicasAt(specReplicas, path, 1)(obj)
			}
		}
		return kinds.ReplicasAt(specReplicas, podTemplate, 1)(obj)
	},
	ReviseReplica: kinds.ReviseAt(specReplicas),
	Retain:        kinds.RetainReplicasAt(specReplicas),
	AggregateStatus: kinds.Aggregate(func(template *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		observed, err := kinds.ObservedGeneration(template, status, members)
		if err != nil {
			return err
		}
		status["observedGeneration"] = observed
		if err := newestConditions(status, members); err != nil {
			return err
		}
		return kinds.Sum(status, members, unitedCounters...)
	}),
	ReflectStatus: kinds.ReflectObserved(append([]string{"conditions"}, unitedCounters...)...),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		n := kinds.NumbersOf(obj)
		updated := n.At("status", "updatedReplicas")
		up, found := n.Maybe("status", "availableReplicas")
		if !found {
			up = n.At("status", "readyReplicas")
		}
		return n.Verdict(n.Observed() && updated >= n.At("spec", "replicas") && up >= updated)
	},
	Dependencies: kinds.DependenciesAt(unitedTemplates...),
}

var sidecarSetStatus = kinds.NewCounted([]string{"matchedPods", "updatedPods", "readyPods", "updatedReadyPods"})

var sidecarSet = kinds.Kind{
	AggregateStatus: sidecarSetStatus.Aggregate,
	ReflectStatus:   sidecarSetStatus.Reflect,
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		n := kinds.NumbersOf(obj)
		_, reported := obj.Object["status"]
		return n.Verdict(reported && n.At("status", "updatedPods") >= n.At("status", "matchedPods"))
	},
	Dependencies: sidecarSetDependencies,
}

// sidecarSetDependencies are known only if the set is for one namespace: it refers to objects in those of its pods.
func sidecarSetDependencies(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	namespace, _, err := fields.String(obj.Object, "spec", "namespace")
	if err != nil || namespace == "" {
		return nil, err
	}
	refs := podspec.References{Namespace: namespace}
	if err := kinds.AddPodAt(&refs, obj, kinds.Path{"spec"}); err != nil {
		return nil, err
	}
	return refs.List(), nil
}

var broadcastJob = kinds.Kind{
	Replicas: func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
		// Parallelism may also be a share of the nodes, which only a member can turn into a number.
		spec, _, err := fields.Map(obj.Object, "spec")
		if err != nil {
			return 0, nil, err
		}
		if _, share := spec["parallelism"].(string); share {
			requirements, err := kinds.RequirementsAt(obj, podTemplate)
			return 1, requirements, err
		}
		return kinds.ReplicasAt(kinds.Path{"spec", "parallelism"}, podTemplate, 1)(obj)
	},
	ReviseReplica:   kinds.ReviseAt(kinds.Path{"spec", "parallelism"}),
	Retain:          kinds.RetainAt(kinds.Path{"spec", "template", "metadata", "labels"}),
	AggregateStatus: kinds.Aggregate(mergeBroadcastJob),
	ReflectStatus:   kinds.ReflectFields("conditions", "startTime", "completionTime", "active", "succeeded", "failed", "desired", "phase"),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		n := kinds.NumbersOf(obj)
		return n.Verdict(n.At("status", "desired") > 0 && n.At("status", "failed") == 0 &&
			n.At("status", "succeeded")+n.At("status", "active") > 0)
	},
	Dependencies: kinds.DependenciesAt(podTemplate),
}

func mergeBroadcastJob(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	if !anyReported(members) {
		return nil
	}
	if err := kinds.Sum(status, members, "active", "succeeded", "failed", "desired"); err != nil {
		return err
	}
	if err := worst(status, members, "phase", []string{"completed", "paused", "running", "failed"}); err != nil {
		return err
	}
	if err := earliest(status, members, "startTime"); err != nil {
		return err
	}
	done, doneAt, err := finishedIn(members, "Complete")
	if err != nil {
		return err
	}
	broken, brokenAt, err := finishedIn(members, "Failed")
	if err != nil {
		return err
	}
	var conditions []any
	if len(broken) > 0 {
		conditions = append(conditions, condition("Failed", "JobFailed", "The Job failed in member clusters "+strings.Join(broken, ", "), brokenAt))
	}
	delete(status, "completionTime")
	if len(done) == len(members) {
		conditions = append(conditions, condition("Complete", "Completed", "The Job completed in all member clusters", doneAt))
		if err := latest(status, members, "completionTime"); err != nil {
			return err
		}
	}
	kinds.SetList(status, "conditions", conditions)
	return nil
}

var advancedCronJob = kinds.Kind{
	AggregateStatus: kinds.Aggregate(func(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		if err := concat(status, members, "active"); err != nil {
			return err
		}
		last(status, members, "type")
		return latest(status, members, "lastScheduleTime")
	}),
	Dependencies: kinds.DependenciesAt(
		kinds.Path{"spec", "template", "jobTemplate", "spec", "template", "spec"},
		kinds.Path{"spec", "template", "broadcastJobTemplate", "spec", "template", "spec"},
	),
}
