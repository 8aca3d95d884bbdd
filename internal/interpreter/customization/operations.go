package customization

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

// Replicas returns the replicas of a template and the requirements of each.
func (s *Set) Replicas(ctx context.Context, obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
	name, results, err := s.call(ctx, obj, configv1alpha1.InterpreterOperationInterpretReplica, 2, obj.Object)
	if err != nil {
		return 0, nil, err
	}
	replicas, found, err := fields.Count(map[string]any{"replica": results[0]}, "replica")
	if err != nil || !found {
		return 0, nil, unusable(name, errors.Join(err, missing(found, "a number of replicas")))
	}
	if results[1] == nil {
		return replicas, nil, nil
	}
	requirements := &workv1alpha2.ReplicaRequirements{}
	if err := decodeRequirements(results[1], requirements); err != nil {
		return 0, nil, unusable(name, err)
	}
	if requirements.Namespace == "" {
		requirements.Namespace = obj.GetNamespace()
	}
	return replicas, requirements, nil
}

// Components returns the parts of a template that has several pod templates.
func (s *Set) Components(ctx context.Context, obj *unstructured.Unstructured) ([]workv1alpha2.Component, error) {
	name, results, err := s.call(ctx, obj, configv1alpha1.InterpreterOperationInterpretComponent, 1, obj.Object)
	if err != nil || results[0] == nil {
		return nil, err
	}
	list, err := fields.Objects(map[string]any{"components": results[0]}, "components")
	if err != nil {
		return nil, unusable(name, err)
	}
	components := make([]workv1alpha2.Component, len(list))
	for i, raw := range list {
		if err := checkRequests(raw, "replicaRequirements"); err != nil {
			return nil, unusable(name, fields.Under("components"+fields.Index(i), err))
		}
		if err := decode(raw, &components[i]); err != nil {
			return nil, unusable(name, fmt.Errorf("components%s: %w", fields.Index(i), err))
		}
		if components[i].Name == "" || components[i].Replicas < 0 {
			return nil, unusable(name, fmt.Errorf("components%s: it needs a name and a number of replicas", fields.Index(i)))
		}
	}
	return components, nil
}

// ReviseReplica returns the object with its replicas set.
func (s *Set) ReviseReplica(ctx context.Context, obj *unstructured.Unstructured, replicas int32) (*unstructured.Unstructured, error) {
	return s.change(ctx, obj, configv1alpha1.InterpreterOperationReviseReplica, obj.Object, int64(replicas))
}

// Retain returns the desired object with the fields that the member owns.
func (s *Set) Retain(ctx context.Context, desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return s.change(ctx, desired, configv1alpha1.InterpreterOperationRetain, desired.Object, observed.Object)
}

// AggregateStatus returns the template with the status that the members' statuses add up to.
func (s *Set) AggregateStatus(ctx context.Context, template *unstructured.Unstructured, items []workv1alpha2.AggregatedStatusItem) (*unstructured.Unstructured, error) {
	members, err := kinds.Members(items)
	if err != nil {
		return nil, err
	}
	list := make([]any, len(items))
	for i, item := range items {
		entry := map[string]any{"clusterName": item.ClusterName, "applied": item.Applied}
		if members[i].Status != nil {
			entry["status"] = members[i].Status
		}
		if item.AppliedMessage != "" {
			entry["appliedMessage"] = item.AppliedMessage
		}
		if item.Health != "" {
			entry["health"] = string(item.Health)
		}
		list[i] = entry
	}
	return s.change(ctx, template, configv1alpha1.InterpreterOperationAggregateStatus, template.Object, list)
}

// ReflectStatus returns the part of a member object's status that is reported.
func (s *Set) ReflectStatus(ctx context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	name, results, err := s.call(ctx, obj, configv1alpha1.InterpreterOperationInterpretStatus, 1, obj.Object)
	if err != nil || results[0] == nil {
		return nil, err
	}
	if _, _, err := fields.Map(map[string]any{"status": results[0]}, "status"); err != nil {
		return nil, unusable(name, err)
	}
	return kinds.Raw(results[0])
}

// Health reports whether a member object is healthy.
func (s *Set) Health(ctx context.Context, obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	name, results, err := s.call(ctx, obj, configv1alpha1.InterpreterOperationInterpretHealth, 1, obj.Object)
	if err != nil {
		return workv1alpha2.ResourceUnknown, err
	}
	healthy, found, err := fields.Bool(map[string]any{"healthy": results[0]}, "healthy")
	if err != nil || !found {
		return workv1alpha2.ResourceUnknown, unusable(name, errors.Join(err, missing(found, "true or false")))
	}
	return kinds.Healthy(healthy), nil
}

// Dependencies returns the objects that an object refers to: what all customizations of the kind find together.
func (s *Set) Dependencies(ctx context.Context, obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	var all []configv1alpha1.DependentObjectReference
	for _, script := range s.kinds[obj.GroupVersionKind()][configv1alpha1.InterpreterOperationInterpretDependency] {
		name, results, err := s.run(ctx, script, 1, obj.Object)
		if err != nil {
			return nil, err
		}
		list, err := fields.Objects(map[string]any{"dependencies": results[0]}, "dependencies")
		if err != nil {
			return nil, unusable(name, err)
		}
		for i, raw := range list {
			var ref configv1alpha1.DependentObjectReference
			if err := decode(raw, &ref); err != nil {
				return nil, unusable(name, fmt.Errorf("dependencies%s: %w", fields.Index(i), err))
			}
			if ref.APIVersion == "" || ref.Kind == "" || ref.Name == "" && ref.LabelSelector == nil {
				return nil, unusable(name, fmt.Errorf("dependencies%s: it needs apiVersion, kind, and a name or a labelSelector", fields.Index(i)))
			}
			if !containsRef(all, ref) {
				all = append(all, ref)
			}
		}
	}
	return all, nil
}

// Rollout returns what an object says about its rolling update, nil if it is not updated step by step.
func (s *Set) Rollout(ctx context.Context, obj *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error) {
	name, results, err := s.call(ctx, obj, configv1alpha1.InterpreterOperationInterpretRollout, 1, obj.Object)
	if err != nil || results[0] == nil {
		return nil, err
	}
	read, _, err := fields.Map(map[string]any{"rollout": results[0]}, "rollout")
	if err != nil {
		return nil, unusable(name, err)
	}
	if _, found, err := fields.Count(read, "replicas"); err != nil || !found {
		return nil, unusable(name, errors.Join(err, missing(found, "replicas")))
	}
	rollout := &configv1alpha1.WorkloadRollout{}
	if err := decode(read, rollout); err != nil {
		return nil, unusable(name, err)
	}
	return rollout, nil
}

// ReviseRollout returns the object with what a cluster may do during its rolling update.
func (s *Set) ReviseRollout(ctx context.Context, obj *unstructured.Unstructured, grant configv1alpha1.RolloutGrant) (*unstructured.Unstructured, error) {
	return s.change(ctx, obj, configv1alpha1.InterpreterOperationReviseRollout, obj.Object, map[string]any{
		"replicas": int64(grant.Replicas), "maxSurge": int64(grant.MaxSurge), "maxUnavailable": int64(grant.MaxUnavailable), "paused": grant.Paused,
	})
}

func containsRef(refs []configv1alpha1.DependentObjectReference, ref configv1alpha1.DependentObjectReference) bool {
	for i := range refs {
		if reflect.DeepEqual(refs[i], ref) {
			return true
		}
	}
	return false
}

// change runs a script that returns an object, which must still be the same object.
func (s *Set) change(ctx context.Context, obj *unstructured.Unstructured, op configv1alpha1.InterpreterOperation, args ...any) (*unstructured.Unstructured, error) {
	name, results, err := s.call(ctx, obj, op, 1, args...)
	if err != nil {
		return nil, err
	}
	root, ok := results[0].(map[string]any)
	if !ok {
		return nil, unusable(name, errors.New("it must return an object"))
	}
	changed := fields.Object(root)
	if err := kinds.SameIdentity(obj, changed); err != nil {
		return nil, unusable(name, err)
	}
	if reflect.DeepEqual(root, obj.Object) {
		return obj, nil
	}
	return changed, nil
}

func (s *Set) call(ctx context.Context, obj *unstructured.Unstructured, op configv1alpha1.InterpreterOperation, results int, args ...any) (string, []any, error) {
	scripts := s.kinds[obj.GroupVersionKind()][op]
	if len(scripts) == 0 {
		return "", nil, fmt.Errorf("no ResourceInterpreterCustomization defines %s for %s", op, obj.GroupVersionKind())
	}
	// Of several customizations that claim an operation the first by name counts.
	return s.run(ctx, scripts[0], results, args...)
}

func (s *Set) run(ctx context.Context, script script, results int, args ...any) (string, []any, error) {
	if script.err != nil {
		return "", nil, script.err
	}
	out, err := s.runner.Call(ctx, script.compiled, results, args...)
	return script.compiled.Name(), out, err
}

func unusable(script string, err error) error {
	return fmt.Errorf("%s: the script's result is unusable: %w", script, err)
}

func missing(found bool, what string) error {
	if found {
		return nil
	}
	return errors.New("it must return " + what)
}

func decodeRequirements(value any, into *workv1alpha2.ReplicaRequirements) error {
	holder := map[string]any{"requires": value}
	if err := checkRequests(holder, "requires"); err != nil {
		return err
	}
	raw, _, err := fields.Map(holder, "requires")
	if err != nil {
		return err
	}
	return decode(raw, into)
}

// checkRequests rejects quantities that are too expensive to calculate with.
func checkRequests(obj map[string]any, field string) error {
	requests, _, err := fields.Map(obj, field, "resourceRequest")
	if err != nil {
		return err
	}
	for name, value := range requests {
		if _, err := podspec.Quantity(value); err != nil {
			return fields.Invalid(err.Error(), field, "resourceRequest", name)
		}
	}
	return nil
}

func decode(value any, into any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
