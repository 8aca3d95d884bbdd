package binding

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/render"
	"github.com/cellplane/cellplane/internal/rights"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/slots"
)

// rendered is a template as one cluster should get it, without our labels and annotations.
type rendered struct {
	cluster  string
	manifest *unstructured.Unstructured
	trace    map[string]string // of the overrides
	asks     *rollout.Copy     // what the manifest asks for; nil if the planner does not know its kind
}

// render returns what the clusters of a binding should get. A failure for one cluster does not stop the others.
func (b *Controller) render(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template, targets []workv1alpha2.TargetCluster) ([]rendered, []error) {
	obj, err := t.Object()
	if err != nil {
		return nil, []error{err}
	}
	pruned, err := b.interpreter.Prune(obj)
	if err != nil {
		return nil, []error{err}
	}
	renderer, err := render.New(b.interpreter, pruned, &binding.Spec)
	if err != nil {
		return nil, []error{err}
	}
	var copies []rendered
	var failures []error
	for i := range targets {
		manifest, trace, err := b.renderOne(ctx, binding, t, renderer, targets[i])
		if err != nil {
			failures = append(failures, fmt.Errorf("preparing %s for cluster %s: %w", t.Key(), targets[i].Name, err))
		}
		if manifest == nil {
			continue
		}
		asks, err := b.asks(ctx, manifest)
		if err != nil {
			failures = append(failures, fmt.Errorf("preparing %s for cluster %s: %w", t.Key(), targets[i].Name, err))
			continue
		}
		copies = append(copies, rendered{cluster: targets[i].Name, manifest: manifest, trace: trace, asks: asks})
	}
	return copies, failures
}

// renderOne returns the manifest for one cluster, nil if the cluster does not exist. A manifest with an error is to be written, too: it has no overrides of
// tenants, see [override.Set.Apply].
func (b *Controller) renderOne(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template, renderer *render.Renderer, target workv1alpha2.TargetCluster) (*unstructured.Unstructured, map[string]string, error) {
	cluster := b.cell.Clusters.Get(cell.Key{Name: target.Name})
	if cluster == nil {
		b.recorder.Failed(events.OfBinding(binding), "cluster:"+target.Name, names.EventClusterNotFound,
			fmt.Sprintf("cluster %s does not exist; join it, or place the template elsewhere", target.Name))
		return nil, nil, nil
	}
	manifest, trace, renderErr := renderer.Manifest(ctx, b.set.Load(), cluster, target.Replicas)
	var overrideErr *render.OverrideError
	switch {
	case errors.As(renderErr, &overrideErr) && manifest == nil:
		b.recorder.Failed(events.OfTemplate(t), overrideAspect(target.Name), names.EventApplyOverridePolicyFailed, renderErr.Error())
		return nil, nil, renderErr
	case overrideErr != nil:
		b.recorder.Failed(events.OfTemplate(t), rightsAspect(target.Name), names.EventApplyOverridePolicyFailed, renderErr.Error())
	case renderErr != nil:
		return nil, nil, renderErr
	case len(rights.Of(manifest)) > 0:
		b.recorder.Succeeded(events.OfTemplate(t), rightsAspect(target.Name), names.EventApplyOverridePolicySucceed, "override policies applied for cluster "+target.Name, false)
	}
	return manifest, trace.Annotations(), renderErr
}

// workOf returns the Work for what a cluster should get.
func (b *Controller) workOf(binding *workv1alpha2.ResourceBinding, t *cell.Template, r *rendered) (*workv1alpha1.Work, error) {
	work := newWork(binding, t, r.cluster)
	if now := b.cell.Works.Get(cell.Key{Namespace: work.Namespace, Name: work.Name}); now != nil && now.ID != "" {
		work.Labels[names.WorkPermanentIDLabel] = now.ID
	}
	maps.Copy(work.Annotations, r.trace)
	b.setEntryRules(work, binding)
	b.checkDispatching(binding, t)
	return work, setManifest(work, binding, t, r.cluster, b.stamp(work, binding, t, r.manifest))
}

// stamp returns the manifest of a Work with our labels and annotations.
func (b *Controller) stamp(work *workv1alpha1.Work, binding *workv1alpha2.ResourceBinding, t *cell.Template, manifest *unstructured.Unstructured) *unstructured.Unstructured {
	stamped := merge.Stamp(manifest, merge.Marks{
		WorkNamespace: work.Namespace, WorkName: work.Name, WorkID: work.Labels[names.WorkPermanentIDLabel],
		BindingNamespace: binding.Namespace, BindingName: binding.Name, BindingID: bindingID(binding),
		TemplateUID: t.UID, TemplateGeneration: t.Generation,
		ConflictResolution: binding.Spec.ConflictResolution, Cell: b.cell.Name,
	})
	work.Annotations[names.ConflictResolutionAnnotation] = stamped.GetAnnotations()[names.ConflictResolutionAnnotation]
	return stamped
}

// setEntryRules tells the cluster what the policy says about open entries.
func (b *Controller) setEntryRules(work *workv1alpha1.Work, binding *workv1alpha2.ResourceBinding) {
	rules, err := entry.RulesOf(binding.Annotations)
	if err != nil {
		b.recorder.Failed(events.OfBinding(binding), "entry", names.EventSyncWorkFailed, err.Error())
		return
	}
	if rules == nil {
		return
	}
	b.recorder.Also(events.OfBinding(binding), "entry", names.EventSyncWorkSucceed, "the rules for open entries are valid", false)
	for _, key := range entry.RuleKeys {
		work.Annotations[key] = binding.Annotations[key] // an empty one is not written
	}
}

// checkDispatching reports an annotation that says something unknown about dispatching.
func (b *Controller) checkDispatching(binding *workv1alpha2.ResourceBinding, t *cell.Template) {
	for _, value := range []string{binding.Annotations[names.DispatchingAnnotation], t.Dispatching} {
		if value != "" && value != names.DispatchingReportOnly {
			b.recorder.Failed(events.OfBinding(binding), "dispatching", names.EventSyncWorkFailed, fmt.Sprintf(
				"the annotation %s is %q, but must be %s; nothing is written to clusters until it is corrected or removed", names.DispatchingAnnotation, value, names.DispatchingReportOnly))
			return
		}
	}
	b.recorder.Also(events.OfBinding(binding), "dispatching", names.EventSyncWorkSucceed, "the annotation "+names.DispatchingAnnotation+" is valid", false)
}

// setManifest sets the spec of a Work, and whether it is only reported about.
func setManifest(work *workv1alpha1.Work, binding *workv1alpha2.ResourceBinding, t *cell.Template, cluster string, stamped *unstructured.Unstructured) error {
	raw, err := stamped.MarshalJSON()
	if err != nil {
		return err
	}
	work.Spec = workv1alpha1.WorkSpec{
		Workload:                    workv1alpha1.WorkloadTemplate{Manifests: []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw, Object: stamped}}}},
		SuspendDispatching:          suspended(binding, t, cluster),
		PreserveResourcesOnDeletion: preserved(binding, t, cluster),
	}
	delete(work.Annotations, names.DispatchingAnnotation)
	if t.ReportsOnly(binding) {
		work.Annotations[names.DispatchingAnnotation] = names.DispatchingReportOnly
	}
	return nil
}

// preserved reports whether the copy in a cluster stays there when its Work is deleted; nil means no. It does while it is only reported about.
func preserved(binding *workv1alpha2.ResourceBinding, t *cell.Template, cluster string) *bool {
	if t.Releases(cluster) || t.ReportsOnly(binding) {
		return ptr.To(true)
	}
	return binding.Spec.PreserveResourcesOnDeletion
}

func newWork(binding *workv1alpha2.ResourceBinding, t *cell.Template, cluster string) *workv1alpha1.Work {
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
		Namespace:  names.ExecutionNamespace(cluster),
		Name:       names.WorkName(t.Kind.Kind, t.Namespace, t.Name),
		Finalizers: []string{names.ExecutionFinalizer},
		Labels: map[string]string{
			names.WorkPermanentIDLabel: uuid.NewString(),
			names.SlotLabel:            slots.Of(t.Namespace, t.Name).String(),
		},
		Annotations: map[string]string{},
	}}
	if binding.Namespace != "" {
		work.Labels[names.ResourceBindingPermanentIDLabel] = bindingID(binding)
		work.Annotations[names.ResourceBindingNamespaceAnnotation] = binding.Namespace
		work.Annotations[names.ResourceBindingNameAnnotation] = binding.Name
	} else {
		work.Labels[names.ClusterResourceBindingPermanentIDLabel] = bindingID(binding)
		work.Annotations[names.ClusterResourceBindingNameAnnotation] = binding.Name
	}
	return work
}

func bindingID(binding *workv1alpha2.ResourceBinding) string {
	if binding.Namespace != "" {
		return binding.Labels[names.ResourceBindingPermanentIDLabel]
	}
	return binding.Labels[names.ClusterResourceBindingPermanentIDLabel]
}

// digestOf returns the digest of a wanted Work, to compare with that of an existing one.
func digestOf(work *workv1alpha1.Work) uint64 {
	objects := make([]cell.Object, len(work.Spec.Workload.Manifests))
	for i := range work.Spec.Workload.Manifests {
		objects[i] = cell.DescribeManifest(work.Spec.Workload.Manifests[i].Object.(*unstructured.Unstructured))
	}
	return cell.WorkDigest(work.Labels, work.Annotations, ptr.Deref(work.Spec.SuspendDispatching, false), work.Spec.PreserveResourcesOnDeletion, objects)
}

// suspended reports whether dispatching to a cluster is suspended; nil means no.
func suspended(binding *workv1alpha2.ResourceBinding, t *cell.Template, cluster string) *bool {
	if t.Suspended || t.ReportsOnly(binding) {
		return ptr.To(true)
	}
	suspension := binding.Spec.Suspension
	if suspension == nil {
		return nil
	}
	if ptr.Deref(suspension.Dispatching, false) {
		return ptr.To(true)
	}
	if suspension.DispatchingOnClusters != nil {
		for _, name := range suspension.DispatchingOnClusters.ClusterNames {
			if name == cluster {
				return ptr.To(true)
			}
		}
	}
	return nil
}

// isTransient reports whether users need not see an error: it resolves by itself, or the cluster is reported as unreachable.
func isTransient(err error) bool { return queue.Transient(err) || fleet.Unreachable(err) }

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
