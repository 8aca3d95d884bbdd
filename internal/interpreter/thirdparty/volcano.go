package thirdparty

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var volcanoCounters = []string{"minAvailable", "pending", "running", "succeeded", "failed", "terminating", "unknown", "retryCount"}

var volcanoJob = kinds.Kind{
	Components: func(obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
		parts, err := volcanoTasks(obj)
		if err != nil {
			return nil, err
		}
		return components(parts)
	},
	AggregateStatus: kinds.Aggregate(mergeVolcano),
	ReflectStatus: kinds.ReflectFields(append([]string{
		"state", "version", "runningDuration", "taskStatusCount", "controlledResources", "conditions",
	}, volcanoCounters...)...),
	Health:       volcanoHealth,
	Dependencies: volcanoDependencies,
}

// volcanoTasks counts for each task the pods without which the Job does not start.
func volcanoTasks(obj *unstructured.Unstructured) ([]part, error) {
	tasks, err := fields.Objects(obj.Object, "spec", "tasks")
	if err != nil {
		return nil, err
	}
	parts := make([]part, len(tasks))
	for i, task := range tasks {
		at := "spec.tasks" + fields.Index(i)
		name, _, err := fields.String(task, "name")
		if err != nil {
			return nil, fields.Under(at, err)
		}
		if name == "" {
			name = "task" + fields.Index(i)
		}
		if parts[i], err = partOf(name, at, task, 1); err != nil {
			return nil, err
		}
		least, found, err := fields.Count(task, "minAvailable")
		if err != nil {
			return nil, fields.Under(at, err)
		}
		if found {
			parts[i].replicas = least
		}
	}
	return parts, nil
}

// volcanoHealth: a Job whose phase moves on by itself or ended as it was asked to is healthy.
func volcanoHealth(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	phase, _, err := fields.String(obj.Object, "status", "state", "phase")
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	switch phase {
	case "Pending", "Running", "Restarting", "Completing", "Completed", "Aborting", "Aborted", "Terminating", "Terminated":
		return workv1alpha2.ResourceHealthy, nil
	}
	return workv1alpha2.ResourceUnhealthy, nil
}

func mergeVolcano(_ *unstructured.Unstructured, status map[string]any, members []kinds.Member) error {
	if !anyReported(members) {
		return nil
	}
	if err := kinds.Sum(status, members, volcanoCounters...); err != nil {
		return err
	}
	last(status, members, "state")
	if err := concat(status, members, "conditions"); err != nil {
		return err
	}
	var version int64
	var longest time.Duration
	resources, tasks := map[string]any{}, map[string]any{}
	delete(status, "runningDuration")
	for _, m := range members {
		n, _, err := fields.Int(m.Status, "version")
		if err != nil {
			return m.Failed(err)
		}
		version = max(version, n)
		text, _, err := fields.String(m.Status, "runningDuration")
		if err != nil {
			return m.Failed(err)
		}
		if d, err := time.ParseDuration(text); err == nil && d > longest {
			longest = d
			status["runningDuration"] = text
		}
		controlled, _, err := fields.Map(m.Status, "controlledResources")
		if err != nil {
			return m.Failed(err)
		}
		for name, value := range controlled {
			resources[name] = value
		}
		if err := addTaskCounts(tasks, m); err != nil {
			return m.Failed(err)
		}
	}
	if version != 0 {
		status["version"] = version
	}
	setMap(status, "controlledResources", resources)
	setMap(status, "taskStatusCount", tasks)
	return nil
}

func addTaskCounts(tasks map[string]any, m kinds.Member) error {
	reported, _, err := fields.Map(m.Status, "taskStatusCount")
	if err != nil {
		return err
	}
	for task := range reported {
		phases, _, err := fields.Map(reported, task, "phase")
		if err != nil {
			return fields.Under("taskStatusCount", err)
		}
		for phase := range phases {
			n, _, err := fields.Int(phases, phase)
			if err != nil {
				return fields.Under("taskStatusCount."+task+".phase", err)
			}
			entry, _ := tasks[task].(map[string]any)
			if entry == nil {
				entry = map[string]any{"phase": map[string]any{}}
				tasks[task] = entry
			}
			counts := entry["phase"].(map[string]any)
			before, _ := counts[phase].(int64)
			counts[phase] = before + n
		}
	}
	return nil
}

func setMap(status map[string]any, name string, value map[string]any) {
	if len(value) == 0 {
		delete(status, name)
		return
	}
	status[name] = value
}

func volcanoDependencies(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	refs := podspec.References{Namespace: obj.GetNamespace()}
	parts, err := volcanoTasks(obj)
	if err != nil {
		return nil, err
	}
	if err := addParts(&refs, parts); err != nil {
		return nil, err
	}
	volumes, err := fields.Objects(obj.Object, "spec", "volumes")
	if err != nil {
		return nil, err
	}
	for i, volume := range volumes {
		// A volume with a claim of its own is made by the Job.
		if volume["volumeClaim"] != nil {
			continue
		}
		if err := refs.AddField(podspec.PersistentVolumeClaim, volume, "volumeClaimName"); err != nil {
			return nil, fields.Under("spec.volumes"+fields.Index(i), err)
		}
	}
	return refs.List(), nil
}
