// Package ownership labels propagation policies with permanent IDs, and removes their finalizers once no cell has a copy.
package ownership

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// retryAfter is the time between checks whether a cell still has a copy of a deleted policy.
const retryAfter = 100 * time.Millisecond

// Released reports whether no reachable cell has a copy of an object.
type Released func(resource schema.GroupVersionResource, namespace, name string, uid types.UID) bool

// Controller manages the ID label and the finalizer of one kind of policy.
type Controller struct {
	client    client.Client
	released  Released
	kind      string
	resource  string
	label     string
	finalizer string
}

// Add registers a controller for each kind of propagation policy.
func Add(mgr manager.Manager, released Released) error {
	for _, c := range []*Controller{
		{kind: "PropagationPolicy", resource: "propagationpolicies", label: names.PropagationPolicyPermanentIDLabel, finalizer: names.PropagationPolicyFinalizer},
		{kind: "ClusterPropagationPolicy", resource: "clusterpropagationpolicies", label: names.ClusterPropagationPolicyPermanentIDLabel, finalizer: names.ClusterPropagationPolicyFinalizer},
	} {
		c.client, c.released = mgr.GetClient(), released
		err := builder.ControllerManagedBy(mgr).
			Named("ownership-"+c.resource).
			For(c.object(), builder.OnlyMetadata).
			WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
			Complete(c)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) object() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(policyv1alpha1.GroupVersion.WithKind(c.kind))
	return object
}

// Reconcile labels a policy, or removes its finalizer.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policy := c.object()
	if err := c.client.Get(ctx, request.NamespacedName, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := policy.DeepCopy()
	changed := c.identify(policy)
	if policy.DeletionTimestamp == nil {
		// Admission adds it to new policies; this one may be older.
		changed = controllerutil.AddFinalizer(policy, c.finalizer) || changed
	} else if controllerutil.ContainsFinalizer(policy, c.finalizer) {
		if !c.released(policyv1alpha1.GroupVersion.WithResource(c.resource), policy.Namespace, policy.Name, policy.UID) {
			return reconcile.Result{RequeueAfter: retryAfter}, nil
		}
		changed = controllerutil.RemoveFinalizer(policy, c.finalizer) || changed
	}
	if !changed {
		return reconcile.Result{}, nil
	}
	err := c.client.Patch(ctx, policy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: retryAfter}, nil // the cache is behind
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("updating the metadata of %s %s: %w", c.kind, request, err)
	}
	return reconcile.Result{}, nil
}

// identify labels a policy with its permanent ID, which is its UID. It keeps an existing one, for example of a policy that
// was restored from a backup.
func (c *Controller) identify(policy *metav1.PartialObjectMetadata) (changed bool) {
	if policy.Labels[c.label] != "" {
		return false
	}
	labels := map[string]string{c.label: string(policy.UID)}
	for key, value := range policy.Labels {
		if key != c.label {
			labels[key] = value
		}
	}
	policy.Labels = labels
	return true
}
