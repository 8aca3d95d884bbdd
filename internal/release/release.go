package release

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/render"
)

// Federation is what workloads are released from.
type Federation struct {
	// Client and Templates are clients of the federation.
	Client    client.Client
	Templates dynamic.Interface
	// Members are clients of all clusters.
	Members map[string]dynamic.Interface
	// Interpreter sets the replicas of templates.
	Interpreter render.Reviser
	// Compare merges a manifest into an object of a member, and returns the first field that would change, or "".
	Compare func(ctx context.Context, cluster string, live, manifest *unstructured.Unstructured) (string, error)
	// Wrote is called after each write. An error interrupts the release. It may be nil.
	Wrote func(what string) error
}

// everywhere is the value of the annotation of a template that is released in all clusters.
const everywhere = "*"

// poll is how often the state of the federation is read while waiting for it.
const poll = 100 * time.Millisecond

// workload is a template that is being released.
type workload struct {
	*Federation
	resource schema.GroupVersionResource
	template *unstructured.Unstructured
	binding  *workv1alpha2.ResourceBinding // nil if there is none
}

// Everywhere releases a template in all clusters. It waits for the engine as long as the context lasts.
func (f *Federation) Everywhere(ctx context.Context, resource schema.GroupVersionResource, template *unstructured.Unstructured) error {
	w, err := f.open(ctx, resource, template)
	if err != nil {
		return err
	}

	// 1. Mark the policies that go with the template, so that they are found when it is gone.
	policies, err := w.ownPolicies(ctx)
	if err != nil {
		return err
	}
	for _, policy := range policies {
		if err := w.annotate(ctx, policy, everywhere); err != nil {
			return err
		}
	}

	// 2. Mark the template, and wait until no Work would delete anything in its cluster.
	if err := w.markTemplate(ctx, everywhere); err != nil {
		return err
	}
	if err := w.untilPreserved(ctx, ""); err != nil {
		return err
	}
	if err := w.checkDependencies(ctx); err != nil {
		return err
	}

	// 3. Delete the template, and wait until the engine has cleaned up.
	uid := w.template.GetUID()
	background := metav1.DeletePropagationBackground
	err = w.Templates.Resource(resource).Namespace(w.template.GetNamespace()).Delete(ctx, w.template.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the template: %w", err)
	}
	if err := w.wrote("deleted the template"); err != nil {
		return err
	}
	if err := w.untilUnmarked(ctx, w.clusters()); err != nil {
		return err
	}

	// 4. Delete its policies.
	for _, policy := range policies {
		if err := f.deletePolicy(ctx, policy); err != nil {
			return err
		}
	}
	return nil
}

// Leftovers deletes the policies in a namespace, and those of cluster-scoped templates, that earlier releases left behind: those that are marked, and whose template is gone.
func (f *Federation) Leftovers(ctx context.Context, namespace string) error {
	var propagation policyv1alpha1.PropagationPolicyList
	var clusterWide policyv1alpha1.ClusterPropagationPolicyList
	var overrides policyv1alpha1.OverridePolicyList
	var clusterOverrides policyv1alpha1.ClusterOverridePolicyList
	for _, list := range []client.ObjectList{&propagation, &clusterWide, &overrides, &clusterOverrides} {
		if err := f.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("listing the policies: %w", err)
		}
	}
	for i := range propagation.Items {
		if err := f.leftover(ctx, &propagation.Items[i], propagation.Items[i].Spec.ResourceSelectors); err != nil {
			return err
		}
	}
	for i := range clusterWide.Items {
		if err := f.leftover(ctx, &clusterWide.Items[i], clusterWide.Items[i].Spec.ResourceSelectors); err != nil {
			return err
		}
	}
	for i := range overrides.Items {
		if err := f.leftover(ctx, &overrides.Items[i], overrides.Items[i].Spec.ResourceSelectors); err != nil {
			return err
		}
	}
	for i := range clusterOverrides.Items {
		if err := f.leftover(ctx, &clusterOverrides.Items[i], clusterOverrides.Items[i].Spec.ResourceSelectors); err != nil {
			return err
		}
	}
	return nil
}

func (f *Federation) leftover(ctx context.Context, policy client.Object, selectors []policyv1alpha1.ResourceSelector) error {
	if policy.GetAnnotations()[names.ReleaseAnnotation] != everywhere || len(selectors) != 1 {
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(selectors[0].APIVersion, selectors[0].Kind)
	mapping, err := f.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return fmt.Errorf("finding the kind %s in the federation: %w", gvk.Kind, err)
	}
	_, err = f.Templates.Resource(mapping.Resource).Namespace(policy.GetNamespace()).Get(ctx, selectors[0].Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	return f.deletePolicy(ctx, policy)
}

// open reads the binding of a template and refuses what cannot be released.
func (f *Federation) open(ctx context.Context, resource schema.GroupVersionResource, template *unstructured.Unstructured) (*workload, error) {
	w := &workload{Federation: f, resource: resource, template: template}
	if err := w.readBinding(ctx); err != nil {
		return nil, err
	}
	for _, cluster := range w.clusters() {
		live, err := w.inMember(ctx, cluster)
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		if open, is := entry.Of(live.GetAnnotations()); is && live.GetLabels()[names.ManagedLabel] != "" {
			return nil, fmt.Errorf("in cluster %s it is %s; close that first", cluster, open.Describe(time.Now()))
		}
	}
	return w, nil
}

func (w *workload) bindingName() string {
	return names.BindingName(w.template.GetKind(), w.template.GetName())
}

func (w *workload) readBinding(ctx context.Context) error {
	binding, clusterWide := &workv1alpha2.ResourceBinding{}, &workv1alpha2.ClusterResourceBinding{}
	var err error
	if w.template.GetNamespace() != "" {
		err = w.Client.Get(ctx, client.ObjectKey{Namespace: w.template.GetNamespace(), Name: w.bindingName()}, binding)
	} else {
		err = w.Client.Get(ctx, client.ObjectKey{Name: w.bindingName()}, clusterWide)
		binding.ObjectMeta, binding.Spec, binding.Status = clusterWide.ObjectMeta, clusterWide.Spec, clusterWide.Status
	}
	switch {
	case apierrors.IsNotFound(err):
		w.binding = nil
		return nil
	case err != nil:
		return fmt.Errorf("reading its binding: %w", err)
	}
	w.binding = binding
	return nil
}

// clusters returns the clusters of the binding that exist.
func (w *workload) clusters() []string {
	var clusters []string
	add := func(targets []workv1alpha2.TargetCluster) {
		for i := range targets {
			if name := targets[i].Name; w.Members[name] != nil && !slices.Contains(clusters, name) {
				clusters = append(clusters, name)
			}
		}
	}
	if w.binding != nil {
		add(w.binding.Spec.Clusters)
		for i := range w.binding.Spec.RequiredBy {
			add(w.binding.Spec.RequiredBy[i].Clusters)
		}
	}
	return clusters
}

// works returns the Works of a binding.
func (w *workload) works(ctx context.Context, binding *workv1alpha2.ResourceBinding) ([]workv1alpha1.Work, error) {
	var list workv1alpha1.WorkList
	label := names.ResourceBindingPermanentIDLabel
	if binding.Namespace == "" {
		label = names.ClusterResourceBindingPermanentIDLabel
	}
	id := binding.Labels[label]
	if id == "" {
		return nil, fmt.Errorf("binding %s has no permanent ID", binding.Name)
	}
	if err := w.Client.List(ctx, &list, client.MatchingLabels{label: id}); err != nil {
		return nil, fmt.Errorf("listing its Works: %w", err)
	}
	return list.Items, nil
}

// markTemplate names a cluster, or all, in the annotation of the template.
func (w *workload) markTemplate(ctx context.Context, clusters string) error {
	if w.template.GetAnnotations()[names.ReleaseAnnotation] == clusters {
		return nil
	}
	marked, err := w.patchTemplate(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{names.ReleaseAnnotation: clusters}}})
	if err != nil {
		return err
	}
	w.template = marked
	return w.wrote("marked the template")
}

func (w *workload) patchTemplate(ctx context.Context, patch map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	patched, err := w.Templates.Resource(w.resource).Namespace(w.template.GetNamespace()).Patch(ctx, w.template.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("marking the template: %w", err)
	}
	return patched, nil
}

// untilPreserved waits until the Works of all clusters, or of one, leave the object in the cluster when they are deleted.
func (w *workload) untilPreserved(ctx context.Context, only string) error {
	return w.untilWorks(ctx, only, "the engine has not prepared the Work of cluster %s yet; is it running, and of this version?", func(work *workv1alpha1.Work) bool {
		return ptr.Deref(work.Spec.PreserveResourcesOnDeletion, false)
	})
}

// untilWorks waits until the Works of all clusters, or of one, are as they should be.
func (w *workload) untilWorks(ctx context.Context, only, failure string, ok func(*workv1alpha1.Work) bool) error {
	if w.binding == nil {
		return nil
	}
	missing := ""
	err := until(ctx, func(ctx context.Context) (bool, error) {
		works, err := w.works(ctx, w.binding)
		if err != nil {
			return false, err
		}
		wanted := w.clusters()
		for i := range works {
			cluster, _ := names.ClusterFromExecutionNamespace(works[i].Namespace)
			if only != "" && cluster != only || works[i].DeletionTimestamp != nil {
				continue
			}
			if missing = cluster; !ok(&works[i]) {
				return false, nil
			}
			wanted = slices.DeleteFunc(wanted, func(name string) bool { return name == cluster })
		}
		for _, cluster := range wanted {
			if missing = cluster; only == "" || cluster == only {
				return false, nil
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf(failure, missing)
	}
	return err
}

// checkDependencies refuses to delete a template whose dependencies would be deleted with it.
func (w *workload) checkDependencies(ctx context.Context) error {
	if w.binding == nil || !w.binding.Spec.PropagateDeps {
		return nil
	}
	var list workv1alpha2.ResourceBindingList
	if err := w.Client.List(ctx, &list, client.InNamespace(w.binding.Namespace)); err != nil {
		return fmt.Errorf("listing the bindings: %w", err)
	}
	for i := range list.Items {
		dependency := &list.Items[i]
		if !slices.ContainsFunc(dependency.Spec.RequiredBy, func(by workv1alpha2.BindingSnapshot) bool { return by.Name == w.binding.Name }) {
			continue
		}
		works, err := w.works(ctx, dependency)
		if err != nil {
			return err
		}
		for j := range works {
			if works[j].DeletionTimestamp == nil && !ptr.Deref(works[j].Spec.PreserveResourcesOnDeletion, false) {
				return fmt.Errorf("%s %s follows it into its clusters and would be deleted there; set preserveResourcesOnDeletion in its policy, or release that first", dependency.Spec.Resource.Kind, dependency.Spec.Resource.Name)
			}
		}
	}
	return nil
}

// untilUnmarked waits until the Works of clusters are gone, and the objects there carry no mark of the federation.
func (w *workload) untilUnmarked(ctx context.Context, clusters []string) error {
	missing := ""
	err := until(ctx, func(ctx context.Context) (bool, error) {
		for _, cluster := range clusters {
			missing = cluster
			work := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: workv1alpha1.GroupVersion.String(), Kind: "Work"}}
			key := client.ObjectKey{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName(w.template.GetKind(), w.template.GetNamespace(), w.template.GetName())}
			if err := w.Client.Get(ctx, key, work); !apierrors.IsNotFound(err) {
				return false, err
			}
			live, err := w.inMember(ctx, cluster)
			if err != nil {
				return false, err
			}
			if live != nil && w.marked(live) {
				return false, nil
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("the engine has not let it go in cluster %s yet; it goes on, and nothing is deleted", missing)
	}
	return err
}

// marked reports whether an object carries the marks of the federation. Those of another federation do not count: one that gives a workload back
// before it was dispatched has never written to it.
func (w *workload) marked(live *unstructured.Unstructured) bool {
	return live.GetLabels()[names.ManagedLabel] != "" && (live.GetLabels()[names.CellLabel] != "" || live.GetAnnotations()[names.TemplateUIDAnnotation] == string(w.template.GetUID()))
}

// inMember reads the object in a cluster, nil if there is none.
func (w *workload) inMember(ctx context.Context, cluster string) (*unstructured.Unstructured, error) {
	live, err := w.Members[cluster].Resource(w.resource).Namespace(w.template.GetNamespace()).Get(ctx, w.template.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading it in cluster %s: %w", cluster, err)
	}
	return live, nil
}

// ownPolicies returns the policies that were made for the template alone, the one that places it first.
func (w *workload) ownPolicies(ctx context.Context) ([]client.Object, error) {
	policy, err := w.ownPolicy(ctx)
	if err != nil || policy == nil {
		return nil, err
	}
	own := []client.Object{policy.Object}
	for _, name := range w.overrideNames(slices.Sorted(maps.Keys(w.Members))...) {
		override, _, err := w.ownOverride(ctx, name)
		if err != nil {
			return nil, err
		}
		if override != nil {
			own = append(own, override)
		}
	}
	return own, nil
}

// placing is a policy that was made for a template alone and places it.
type placing struct {
	client.Object
	spec *policyv1alpha1.PropagationSpec
}

// ownPolicy returns the policy that was made for the template alone and places it, nil if there is none.
func (w *workload) ownPolicy(ctx context.Context) (*placing, error) {
	policy, annotation := newPolicy(), names.PropagationPolicyNameAnnotation
	if w.template.GetNamespace() == "" {
		policy, annotation = newClusterPolicy(), names.ClusterPropagationPolicyNameAnnotation
	}
	found, err := w.read(ctx, w.bindingName(), policy.Object)
	if err != nil || !found || !w.selects(policy.spec.ResourceSelectors) || policy.spec.Placement.ClusterAffinity == nil {
		return nil, err
	}
	if w.template.GetAnnotations()[annotation] != policy.GetName() {
		return nil, nil // another one places it
	}
	return policy, nil
}

func newPolicy() *placing {
	policy := &policyv1alpha1.PropagationPolicy{}
	return &placing{policy, &policy.Spec}
}

func newClusterPolicy() *placing {
	policy := &policyv1alpha1.ClusterPropagationPolicy{}
	return &placing{policy, &policy.Spec}
}

// String names the policy, for messages.
func (p *placing) String() string { return kindOf(p.Object) + " " + p.GetName() }

// overrideNames returns the names of the overrides that may have been made for the template alone: with what differs between clusters, and with what some clusters keep.
func (w *workload) overrideNames(clusters ...string) []string {
	var all []string
	if w.template.GetNamespace() != "" { // a cluster-scoped object that differs between clusters is not adopted
		all = append(all, w.bindingName())
	}
	for _, cluster := range clusters {
		all = append(all, names.EntryOverrideName(w.template.GetKind(), w.template.GetName(), cluster))
	}
	return all
}

// ownOverride returns an override that was made for the template alone, nil if there is none of that name.
func (w *workload) ownOverride(ctx context.Context, name string) (client.Object, *policyv1alpha1.OverrideSpec, error) {
	namespaced, clusterWide := &policyv1alpha1.OverridePolicy{}, &policyv1alpha1.ClusterOverridePolicy{}
	var override client.Object = namespaced
	spec := &namespaced.Spec
	if w.template.GetNamespace() == "" {
		override, spec = clusterWide, &clusterWide.Spec
	}
	found, err := w.read(ctx, name, override)
	if err != nil || !found || !w.selects(spec.ResourceSelectors) {
		return nil, nil, err
	}
	return override, spec, nil
}

func (w *workload) read(ctx context.Context, name string, policy client.Object) (bool, error) {
	err := w.Client.Get(ctx, client.ObjectKey{Namespace: w.template.GetNamespace(), Name: name}, policy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading its policies: %w", err)
	}
	return true, nil
}

func (w *workload) selects(selectors []policyv1alpha1.ResourceSelector) bool {
	return len(selectors) == 1 && selectors[0].Name == w.template.GetName() && selectors[0].Kind == w.template.GetKind() && selectors[0].APIVersion == w.template.GetAPIVersion()
}

// annotate marks a policy.
func (w *workload) annotate(ctx context.Context, policy client.Object, value string) error {
	if policy.GetAnnotations()[names.ReleaseAnnotation] == value {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, names.ReleaseAnnotation, value))
	if err := w.Client.Patch(ctx, policy, patch); err != nil {
		return fmt.Errorf("marking %s %s: %w", kindOf(policy), policy.GetName(), err)
	}
	return w.wrote("marked the " + kindOf(policy))
}

func (f *Federation) deletePolicy(ctx context.Context, policy client.Object) error {
	uid := policy.GetUID()
	if err := f.Client.Delete(ctx, policy, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %s: %w", kindOf(policy), policy.GetName(), err)
	}
	return f.wrote("deleted the " + kindOf(policy))
}

func kindOf(policy client.Object) string {
	switch policy.(type) {
	case *policyv1alpha1.OverridePolicy:
		return "OverridePolicy"
	case *policyv1alpha1.ClusterOverridePolicy:
		return "ClusterOverridePolicy"
	case *policyv1alpha1.ClusterPropagationPolicy:
		return "ClusterPropagationPolicy"
	default:
		return "PropagationPolicy"
	}
}

func (f *Federation) wrote(what string) error {
	if f.Wrote == nil {
		return nil
	}
	return f.Wrote(what)
}

// until polls until a condition holds, or the context ends.
func until(ctx context.Context, condition func(context.Context) (bool, error)) error {
	return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		done, err := condition(ctx)
		if err != nil && ctx.Err() != nil {
			return false, nil // the context's own error says it better
		}
		return done, err
	})
}

// Placed reports whether a policy of the federation places a template.
func Placed(template *unstructured.Unstructured) bool {
	annotations := template.GetAnnotations()
	return annotations[names.PropagationPolicyNameAnnotation] != "" || annotations[names.ClusterPropagationPolicyNameAnnotation] != "" ||
		strings.TrimSpace(annotations[names.ReleaseAnnotation]) != ""
}
