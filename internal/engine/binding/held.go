package binding

import (
	"context"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// held reports whether the Works of a binding must stay as they are: its quota refuses what the template asks for, or has not been asked yet. The
// detector writes new requirements to the binding, and that enqueues it.
func (b *Controller) held(ctx context.Context, binding *workv1alpha2.ResourceBinding, t *cell.Template) (bool, error) {
	if scheduler.Held(binding) {
		return true, nil
	}
	if len(binding.Spec.Clusters) == 0 || !b.limited(binding.Namespace) {
		return false, nil
	}
	obj, err := t.Object()
	if err != nil {
		return false, err
	}
	replicas, requirements, err := b.interpreter.Replicas(ctx, obj)
	if err != nil {
		return false, err
	}
	components, err := b.interpreter.Components(ctx, obj)
	if err != nil {
		return false, err
	}
	return !apiequality.Semantic.DeepEqual(requirements, binding.Spec.ReplicaRequirements) ||
		!apiequality.Semantic.DeepEqual(scheduler.Several(replicas, components), binding.Spec.Components), nil
}

// limited reports whether a namespace has a quota.
func (b *Controller) limited(namespace string) bool {
	return b.cell.Quotas.Len() > 0 && slices.ContainsFunc(b.cell.Quotas.All(), func(quota *policyv1alpha1.FederatedResourceQuota) bool {
		return quota.Namespace == namespace && quota.DeletionTimestamp == nil
	})
}
