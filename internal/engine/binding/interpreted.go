package binding

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/schedule"
)

// asks returns what a manifest asks for; nil if rollouts of its kind are not planned. The planner knows some kinds itself. Others are described by the
// interpreter.
func (b *Controller) asks(ctx context.Context, manifest *unstructured.Unstructured) (*rollout.Copy, error) {
	if _, known := rollout.KindOf(manifest.GetAPIVersion(), manifest.GetKind()); known {
		return rollout.CopyOf(manifest), nil
	}
	if !b.interpreter.PlansRollouts(manifest.GroupVersionKind()) {
		return nil, nil
	}
	says, err := b.interpreter.Rollout(ctx, manifest)
	if says == nil || err != nil {
		return nil, err
	}
	return rollout.InterpretedCopy(manifest, says)
}

// numbered returns a manifest for a cluster that is not planned for. It keeps the number of its command: the member refuses a lower one. That of an interpreted
// kind has its whole command, so that a plan can begin with it.
func (b *Controller) numbered(binding *workv1alpha2.ResourceBinding, works []*cell.Work, r *rendered) *unstructured.Unstructured {
	told, seq := copyIn(workIn(works, r.cluster)), b.seqIn(works, r.cluster)
	if _, known := rollout.KindOf(r.manifest.GetAPIVersion(), r.manifest.GetKind()); known {
		if r.asks == nil {
			return r.manifest
		}
		return rollout.Number(r.manifest, seq, r.asks.Command.Revision)
	}
	switch {
	case r.asks != nil && (told != nil || binding.Spec.Placement != nil && schedule.Divided(binding.Spec.Placement)):
		return (&rollout.Entry{Seq: seq, Command: r.asks.Command}).Mark(r.manifest)
	case r.asks == nil && told != nil:
		// It was planned once. Nobody knows what it may do now.
		all := told.Command.Replicas
		if i := slices.IndexFunc(binding.Spec.Clusters, func(c workv1alpha2.TargetCluster) bool { return c.Name == r.cluster }); i >= 0 {
			all = int(binding.Spec.Clusters[i].Replicas)
		}
		command := rollout.Command{Replicas: all, Surge: all, Unavailable: all, Revision: rollout.RevisionOf(r.manifest)}
		return (&rollout.Entry{Seq: seq, Command: command}).Mark(r.manifest)
	default:
		return r.manifest
	}
}

// describe finds out the kind of the workload, and whether its rollouts are planned.
func (r *rolling) describe(ctx context.Context) (known bool, err error) {
	resource := &r.binding.Spec.Resource
	if r.kind, known = rollout.KindOf(resource.APIVersion, resource.Kind); known || !r.b.interpreter.PlansRollouts(r.t.Kind.GroupVersionKind) {
		return known, nil
	}
	obj, err := r.t.Object()
	if err != nil {
		return false, err
	}
	if r.says, err = r.b.interpreter.Rollout(ctx, obj); r.says == nil || err != nil {
		return false, err
	}
	r.kind = rollout.InterpretedKind(r.says)
	return true, nil
}

// unmarked reports whether a Work of an interpreted kind does not have its command: it is from before the kind was interpreted. It is written at once then.
func (r *rolling) unmarked(works []*cell.Work) bool {
	return r.says != nil && slices.ContainsFunc(works, func(w *cell.Work) bool { return !w.Deleting && copyIn(w) == nil })
}

// apply returns a manifest that carries out a command.
func (r *rolling) apply(ctx context.Context, entry *rollout.Entry, manifest *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if r.says == nil {
		return entry.Apply(manifest), nil
	}
	grant := entry.Command.Grant()
	granted, err := r.b.interpreter.ReviseRollout(ctx, manifest, grant)
	if err != nil {
		return nil, err
	}
	// The bounds depend on the script or webhook, so see whether it has written what it was given.
	asks, err := r.b.asks(ctx, granted)
	switch {
	case err != nil:
		return nil, err
	case asks == nil || asks.Command.Revision != rollout.RevisionOf(manifest):
		return nil, fmt.Errorf("ReviseRollout of %s changes the pod template, or how it is updated", manifest.GetKind())
	}
	if has := &asks.Command; has.Replicas != int(grant.Replicas) || has.Surge > int(grant.MaxSurge) || has.Unavailable > int(grant.MaxUnavailable) {
		return nil, fmt.Errorf("ReviseRollout of %s was given %d replicas, maxSurge %d and maxUnavailable %d, but InterpretRollout then finds %d, %d and %d",
			manifest.GetKind(), grant.Replicas, grant.MaxSurge, grant.MaxUnavailable, has.Replicas, has.Surge, has.Unavailable)
	}
	return entry.Mark(granted), nil
}

// bounds resolves the bounds of the template for a number of replicas in all clusters, and returns whether it is paused.
func (r *rolling) bounds(replicas int) (rollout.Bounds, bool, error) {
	if r.says != nil {
		bounds, err := rollout.InterpretedBounds(r.says, replicas)
		return bounds, r.says.Paused, err
	}
	obj, err := r.t.Object()
	if err != nil {
		return rollout.Bounds{}, false, err
	}
	bounds, err := rollout.TemplateBounds(obj, replicas)
	return bounds, rollout.Paused(obj), err
}
