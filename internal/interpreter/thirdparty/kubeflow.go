package thirdparty

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var notebook = kinds.Kind{
	Replicas: func(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
		requirements, err := kinds.RequirementsAt(obj, podTemplate)
		return 1, requirements, err
	},
	AggregateStatus: kinds.Aggregate(func(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
		if !anyReported(members) {
			return nil
		}
		last(status, members, "containerState")
		if err := concat(status, members, "conditions"); err != nil {
			return err
		}
		return kinds.Sum(status, members, "readyReplicas")
	}),
	ReflectStatus: kinds.ReflectFields("readyReplicas", "containerState", "conditions"),
	Health:        notebookHealth,
	Dependencies:  kinds.DependenciesAt(podTemplate),
}

// notebookHealth: a notebook that waits or ended well is fine, one that crashed is not.
func notebookHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	state, _, err := fields.Map(obj.Object, "status", "containerState")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	if state["running"] != nil || state["waiting"] != nil {
		return workv1alpha2.ResourceHealthy, nil
	}
	terminated, found, err := fields.Map(state, "terminated")
	if err != nil {
		return workv1alpha2.ResourceUnknown, fields.Under("status.containerState", err)
	}
	code, _, err := fields.Int(terminated, "exitCode")
	if err != nil {
		return workv1alpha2.ResourceUnknown, fields.Under("status.containerState.terminated", err)
	}
	bad := terminated["reason"] == "Error" || terminated["reason"] == "OOMKilled" || terminated["reason"] == "ContainerCannotRun"
	return kinds.Healthy(found && code == 0 && !bad), nil
}

// training describes the kinds of the Kubeflow trainers, which differ in what they call their replicas.
type training struct {
	name string
	// specs is the field of spec that holds the replicas by type.
	specs string
	// types in the order in which they are listed.
	types []string
	// optional types have no replicas unless the template says so.
	optional []string
}

var (
	pyTorchJob = training{name: "PyTorchJob", specs: "pytorchReplicaSpecs", types: []string{"Master", "Worker"}}.kind()
	tfJob      = training{name: "TFJob", specs: "tfReplicaSpecs", types: []string{"PS", "Worker", "Chief", "Master", "Evaluator"}}.kind()
	mpiJob     = training{name: "MPIJob", specs: "mpiReplicaSpecs", types: []string{"Launcher", "Worker"}, optional: []string{"Worker"}}.kind()
)

func (t training) kind() kinds.Kind {
	return kinds.Kind{
		Components: func(obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
			parts, err := t.parts(obj)
			if err != nil {
				return nil, err
			}
			return components(parts)
		},
		AggregateStatus: kinds.Aggregate(adoptOnly(t.merge)),
		ReflectStatus:   kinds.ReflectFields("conditions", "replicaStatuses", "startTime", "completionTime", "lastReconcileTime"),
		Health:          trainingHealth,
		Dependencies: func(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
			refs := podspec.References{Namespace: obj.GetNamespace()}
			parts, err := t.parts(obj)
			if err != nil {
				return nil, err
			}
			if err := addParts(&refs, parts); err != nil {
				return nil, err
			}
			return refs.List(), nil
		},
	}
}

func (t training) parts(obj *unstructured.Unstructured) ([]part, error) {
	var parts []part
	for _, kind := range t.types {
		spec, found, err := fields.Map(obj.Object, "spec", t.specs, kind)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		unset := int32(1)
		if slices.Contains(t.optional, kind) {
			unset = 0
		}
		p, err := partOf(strings.ToLower(kind), "spec."+t.specs+"."+kind, spec, unset)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func trainingHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	conditions, err := fields.Objects(obj.Object, "status", "conditions")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	for _, c := range conditions {
		if c["type"] == "Failed" && c["status"] == "True" {
			return workv1alpha2.ResourceUnhealthy, nil
		}
	}
	return kinds.Healthy(len(conditions) > 0), nil
}

// merge adds up a job that runs in several members: it has succeeded once it has everywhere and failed once it has
// anywhere.
func (t training) merge(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	counts, err := replicaStatuses(members)
	if err != nil {
		return err
	}
	setMap(status, "replicaStatuses", counts)
	if err := earliest(status, members, "startTime"); err != nil {
		return err
	}
	if err := latest(status, members, "lastReconcileTime"); err != nil {
		return err
	}
	done, doneAt, err := finishedIn(members, "Succeeded")
	if err != nil {
		return err
	}
	broken, brokenAt, err := finishedIn(members, "Failed")
	if err != nil {
		return err
	}
	delete(status, "completionTime")
	switch {
	case len(broken) > 0:
		status["conditions"] = []any{condition("Failed", t.name+"Failed", "The "+t.name+" failed in member clusters "+strings.Join(broken, ", "), brokenAt)}
	case len(done) == len(members):
		status["conditions"] = []any{condition("Succeeded", "Completed", "The "+t.name+" succeeded in all member clusters", doneAt)}
		return latest(status, members, "completionTime")
	default:
		return conditionsByType(status, unfinished(members), newer)
	}
	return nil
}

// unfinished leaves out members that are done: what they say of themselves is not true of the whole.
func unfinished(members []kinds.Member) []kinds.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m kinds.Member) bool {
		done, _, err := finishedIn([]kinds.Member{m}, "Succeeded")
		return err == nil && len(done) > 0
	})
}

func replicaStatuses(members []kinds.Member) (map[string]any, error) {
	counts := map[string]any{}
	for _, m := range members {
		byType, _, err := fields.Map(m.Status, "replicaStatuses")
		if err != nil {
			return nil, m.Failed(err)
		}
		for kind := range byType {
			entry, _ := counts[kind].(map[string]any)
			if entry == nil {
				entry = map[string]any{}
				counts[kind] = entry
			}
			for _, name := range []string{"active", "succeeded", "failed"} {
				n, _, err := fields.Int(byType, kind, name)
				if err != nil {
					return nil, m.Failed(fields.Under("replicaStatuses", err))
				}
				if before, _ := entry[name].(int64); before+n != 0 {
					entry[name] = before + n
				}
			}
		}
	}
	return counts, nil
}
