package thirdparty

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
	"github.com/cellplane/cellplane/internal/interpreter/podspec"
)

var workflow = kinds.Kind{
	Replicas:      workflowReplicas,
	ReviseReplica: kinds.ReviseAt(kinds.Path{"spec", "parallelism"}),
	// A Workflow has no status subresource: an update without its status would erase it.
	Retain: kinds.RetainAt(kinds.Path{"spec", "suspend"}, kinds.Path{"status"}),
	Health: func(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
		phase, _, err := fields.String(obj.Object, "status", "phase")
		if err != nil {
			return workv1alpha2.ResourceUnknown, err
		}
		return kinds.Healthy(phase != "" && phase != "Error" && phase != "Failed"), nil
	},
	Dependencies: workflowDependencies,
}

// workflowReplicas counts the pods that may run at once. What each of them needs differs from step to step; what
// all of them require of their nodes does not.
func workflowReplicas(obj *unstructured.Unstructured) (int32, *workv1alpha2.ReplicaRequirements, error) {
	n, found, err := fields.Count(obj.Object, "spec", "parallelism")
	if err != nil {
		return 0, nil, err
	}
	if !found {
		n = 1
	}
	spec, _, err := fields.Map(obj.Object, "spec")
	if err != nil {
		return 0, nil, err
	}
	claim, err := podspec.NodeClaim(spec)
	if err != nil {
		return 0, nil, fields.Under("spec", err)
	}
	priority, _, err := fields.String(spec, "podPriorityClassName")
	if err != nil {
		return 0, nil, fields.Under("spec", err)
	}
	if claim == nil && priority == "" {
		return n, nil, nil
	}
	return n, &workv1alpha2.ReplicaRequirements{NodeClaim: claim, Namespace: obj.GetNamespace(), PriorityClassName: priority}, nil
}

// workflowDependencies reads the Workflow and each of its templates as the pod specs they almost are. Claims made
// from claim templates are the Workflow's own.
func workflowDependencies(obj *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	refs := podspec.References{Namespace: obj.GetNamespace()}
	spec, found, err := fields.Map(obj.Object, "spec")
	if err != nil || !found {
		return nil, err
	}
	if err := addWorkflowPod(&refs, spec); err != nil {
		return nil, fields.Under("spec", err)
	}
	templates, err := fields.Objects(spec, "templates")
	if err != nil {
		return nil, fields.Under("spec", err)
	}
	for i, template := range templates {
		if err := addWorkflowPod(&refs, template); err != nil {
			return nil, fields.Under("spec.templates"+fields.Index(i), err)
		}
	}
	return refs.List(), nil
}

func addWorkflowPod(refs *podspec.References, template map[string]any) error {
	if err := refs.AddPod(template); err != nil {
		return err
	}
	sidecars, err := fields.Objects(template, "sidecars")
	if err != nil {
		return err
	}
	all := make([]any, 0, len(sidecars)+2)
	for _, sidecar := range sidecars {
		all = append(all, sidecar)
	}
	for _, name := range []string{"container", "script"} {
		container, found, err := fields.Map(template, name)
		if err != nil {
			return err
		}
		if found {
			all = append(all, container)
		}
	}
	if err := refs.AddPod(map[string]any{"containers": all}); err != nil {
		return err
	}
	account, _, err := fields.String(template, "executor", "serviceAccountName")
	if err != nil {
		return err
	}
	if account != "default" {
		refs.Add(podspec.ServiceAccount, account)
	}
	return nil
}
