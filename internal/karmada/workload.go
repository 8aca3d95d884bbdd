package karmada

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/override"
)

// ControlPlane is a Karmada control plane.
type ControlPlane struct {
	// Client and Objects are clients of its API server.
	Client  client.Client
	Objects dynamic.Interface
	// Wrote is called after each write. An error interrupts what is being done. It may be nil.
	Wrote func(what string) error

	policies sync.Mutex // held while a policy is changed: many workloads may share it
}

// Workload is a template of Karmada with what Karmada has made of it.
type Workload struct {
	Template *unstructured.Unstructured
	Binding  *workv1alpha2.ResourceBinding
	// Policy is a PropagationPolicy or a ClusterPropagationPolicy. It is nil for a dependency that only follows others.
	Policy client.Object
	// Peers are the keys of all bindings that the policy places, also in other namespaces. Those without a namespace are ClusterResourceBindings.
	Peers []client.ObjectKey
	// Overrides are the OverridePolicies and ClusterOverridePolicies that select the template.
	Overrides []client.Object
}

// GroupVersionKind returns the kind of the template.
func (w *Workload) GroupVersionKind() schema.GroupVersionKind { return w.Template.GroupVersionKind() }

// String returns kind and name, for messages.
func (w *Workload) String() string {
	return fmt.Sprintf("%s %s/%s", w.Template.GetKind(), w.Template.GetNamespace(), w.Template.GetName())
}

// Targets returns where the workload is: where it was scheduled to, and where others need it.
func (w *Workload) Targets() []workv1alpha2.TargetCluster {
	targets := slices.Clone(w.Binding.Spec.Clusters)
	for i := range w.Binding.Spec.RequiredBy {
		for _, cluster := range w.Binding.Spec.RequiredBy[i].Clusters {
			if !slices.ContainsFunc(targets, func(t workv1alpha2.TargetCluster) bool { return t.Name == cluster.Name }) {
				targets = append(targets, workv1alpha2.TargetCluster{Name: cluster.Name})
			}
		}
	}
	slices.SortFunc(targets, func(a, b workv1alpha2.TargetCluster) int { return strings.Compare(a.Name, b.Name) })
	return targets
}

// Read returns the workloads of a namespace: first those that have a policy, then those that follow them.
func (p *ControlPlane) Read(ctx context.Context, namespace string) ([]*Workload, error) {
	var bindings workv1alpha2.ResourceBindingList
	if err := p.Client.List(ctx, &bindings, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading Karmada's bindings: %w", err)
	}
	overrides, err := p.overrides(ctx, namespace)
	if err != nil {
		return nil, err
	}
	peers, err := p.peers(ctx)
	if err != nil {
		return nil, err
	}
	var workloads []*Workload
	for i := range bindings.Items {
		w := &Workload{Binding: &bindings.Items[i]}
		found, err := p.complete(ctx, w, overrides)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if w.Policy != nil {
			w.Peers = peers[policyOf(w.Binding)]
		}
		workloads = append(workloads, w)
	}
	slices.SortStableFunc(workloads, func(a, b *Workload) int {
		if (a.Policy == nil) != (b.Policy == nil) {
			if a.Policy == nil {
				return 1
			}
			return -1
		}
		return strings.Compare(a.String(), b.String())
	})
	return workloads, nil
}

// Refresh reads a workload again: its binding, template, policy and overrides.
func (p *ControlPlane) Refresh(ctx context.Context, w *Workload) error {
	if err := p.refresh(ctx, w.Binding); err != nil {
		return fmt.Errorf("reading the binding of %s in Karmada: %w", w, err)
	}
	overrides, err := p.overrides(ctx, w.Binding.Namespace)
	if err != nil {
		return err
	}
	found, err := p.complete(ctx, w, overrides)
	if err == nil && !found {
		return fmt.Errorf("%s was deleted in Karmada", w)
	}
	return err
}

// compiled is an OverridePolicy or a ClusterOverridePolicy.
type compiled struct {
	policy client.Object
	*override.Policy
}

// overrides reads the overrides that may apply in a namespace.
func (p *ControlPlane) overrides(ctx context.Context, namespace string) (all []compiled, err error) {
	var inNamespace policyv1alpha1.OverridePolicyList
	var everywhere policyv1alpha1.ClusterOverridePolicyList
	for _, list := range []client.ObjectList{&inNamespace, &everywhere} {
		if err := p.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("reading Karmada's overrides: %w", err)
		}
	}
	for i := range inNamespace.Items {
		all = append(all, compiled{&inNamespace.Items[i], override.Compile(&inNamespace.Items[i])})
	}
	for i := range everywhere.Items {
		all = append(all, compiled{&everywhere.Items[i], override.CompileCluster(&everywhere.Items[i])})
	}
	return all, nil
}

// peers reads which bindings each policy places.
func (p *ControlPlane) peers(ctx context.Context) (map[policyKey][]client.ObjectKey, error) {
	peers := map[policyKey][]client.ObjectKey{}
	for _, kind := range []string{"ResourceBindingList", "ClusterResourceBindingList"} {
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(workv1alpha2.GroupVersion.WithKind(kind))
		if err := p.Client.List(ctx, all); err != nil {
			return nil, fmt.Errorf("reading Karmada's bindings: %w", err)
		}
		for i := range all.Items {
			key := policyOf(&all.Items[i])
			peers[key] = append(peers[key], client.ObjectKeyFromObject(&all.Items[i]))
		}
	}
	return peers, nil
}

// complete reads what belongs to the binding of a workload. It reports whether the template exists.
func (p *ControlPlane) complete(ctx context.Context, w *Workload, overrides []compiled) (found bool, err error) {
	ref := &w.Binding.Spec.Resource
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	mapping, err := p.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, fmt.Errorf("finding the kind %s in Karmada: %w", gvk.Kind, err)
	}
	template, err := p.Objects.Resource(mapping.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s %s/%s in Karmada: %w", ref.Kind, ref.Namespace, ref.Name, err)
	}
	w.Template, w.Overrides = template, nil
	for _, o := range overrides {
		if o.Selects(template) {
			w.Overrides = append(w.Overrides, o.policy)
		}
	}
	w.Policy, err = p.policy(ctx, policyOf(w.Binding))
	if err != nil {
		return false, fmt.Errorf("reading the policy of %s in Karmada: %w", w, err)
	}
	return true, nil
}

// policy reads a policy. It returns nil if there is none: a policy that was deleted places nothing any more.
func (p *ControlPlane) policy(ctx context.Context, key policyKey) (client.Object, error) {
	if key == (policyKey{}) {
		return nil, nil
	}
	var policy client.Object = &policyv1alpha1.PropagationPolicy{}
	if key.Namespace == "" {
		policy = &policyv1alpha1.ClusterPropagationPolicy{}
	}
	if err := p.Client.Get(ctx, client.ObjectKey(key), policy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return policy, nil
}

// policyKey identifies a policy. One without a namespace is a ClusterPropagationPolicy.
type policyKey client.ObjectKey

// policyOf returns the policy that a binding names, or nothing.
func policyOf(binding client.Object) policyKey {
	annotations := binding.GetAnnotations()
	if name := annotations[names.PropagationPolicyNameAnnotation]; name != "" {
		return policyKey{Namespace: annotations[names.PropagationPolicyNamespaceAnnotation], Name: name}
	}
	return policyKey{Name: annotations[names.ClusterPropagationPolicyNameAnnotation]}
}

// Work returns the Work of a workload for a cluster, nil if there is none.
func (p *ControlPlane) Work(ctx context.Context, w *Workload, cluster string) (*workv1alpha1.Work, error) {
	work := &workv1alpha1.Work{}
	key := client.ObjectKey{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName(w.Template.GetKind(), w.Template.GetNamespace(), w.Template.GetName())}
	err := p.Client.Get(ctx, key, work)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Karmada's Work %s: %w", key, err)
	}
	return work, nil
}

// Manifest returns what a Work tells its cluster.
func Manifest(work *workv1alpha1.Work) (*unstructured.Unstructured, error) {
	if len(work.Spec.Workload.Manifests) != 1 {
		return nil, fmt.Errorf("work %s/%s has %d manifests instead of one", work.Namespace, work.Name, len(work.Spec.Workload.Manifests))
	}
	manifest := &unstructured.Unstructured{}
	if err := manifest.UnmarshalJSON(work.Spec.Workload.Manifests[0].Raw); err != nil {
		return nil, fmt.Errorf("reading Work %s/%s: %w", work.Namespace, work.Name, err)
	}
	return manifest, nil
}
