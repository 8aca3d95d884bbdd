package native

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

var deploymentStatus = kinds.NewCounted([]string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"})

var deployment = kinds.Kind{
	Replicas:        kinds.ReplicasAt(specReplicas, podTemplate, 0),
	ReviseReplica:   kinds.ReviseAt(specReplicas),
	Retain:          kinds.RetainReplicasAt(specReplicas),
	AggregateStatus: deploymentStatus.Aggregate,
	Conditions:      deploymentConditions,
	ReflectStatus:   reflectDeployment,
	Health:          kinds.RolledOut,
	Dependencies:    kinds.DependenciesAt(podTemplate),
}

var replicaSetStatus = kinds.NewCounted([]string{"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"})

var replicaSet = kinds.Kind{
	Replicas:        kinds.ReplicasAt(specReplicas, podTemplate, 0),
	ReviseReplica:   kinds.ReviseAt(specReplicas),
	Retain:          kinds.RetainReplicasAt(specReplicas),
	AggregateStatus: replicaSetStatus.Aggregate,
	ReflectStatus:   replicaSetStatus.Reflect,
	Health:          replicaSetHealth,
	Dependencies:    kinds.DependenciesAt(podTemplate),
}

var statefulSetStatus = kinds.NewCounted([]string{"availableReplicas", "currentReplicas", "readyReplicas", "replicas", "updatedReplicas"})

var statefulSet = kinds.Kind{
	Replicas:        kinds.ReplicasAt(specReplicas, podTemplate, 0),
	ReviseReplica:   kinds.ReviseAt(specReplicas),
	Retain:          kinds.RetainReplicasAt(specReplicas),
	AggregateStatus: statefulSetStatus.Aggregate,
	ReflectStatus:   statefulSetStatus.Reflect,
	Health:          kinds.RolledOutAbovePartition,
	Dependencies:    kinds.DependenciesWithClaimTemplates(podTemplate),
}

var daemonSetStatus = kinds.NewCounted([]string{
	"currentNumberScheduled", "desiredNumberScheduled", "numberAvailable", "numberMisscheduled", "numberReady",
	"updatedNumberScheduled", "numberUnavailable",
})

var daemonSet = kinds.Kind{
	AggregateStatus: daemonSetStatus.Aggregate,
	ReflectStatus:   daemonSetStatus.Reflect,
	Health:          kinds.RolledOutEverywhere,
	Dependencies:    kinds.DependenciesAt(podTemplate),
}

func replicaSetHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	n := kinds.NumbersOf(obj)
	return n.Verdict(n.Observed() && n.At("status", "availableReplicas") >= n.At("spec", "replicas"))
}
