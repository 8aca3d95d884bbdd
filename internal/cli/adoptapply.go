package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/workwatch"
)

// adopt adopts one group. The engine writes to no cluster before its own result was rehearsed in all of them.
func (a *adoption) adopt(ctx context.Context, group adopt.Group, item *adopt.Item, timeout time.Duration) error {
	// 1. Rehearse before anything is created.
	if len(item.Obstacles) > 0 {
		return errors.New(item.Obstacles[0])
	}
	fromEngine, _, err := a.renderedSoFar(ctx, group, item, nil) // of an earlier attempt
	if err != nil {
		return err
	}
	if err := a.mustNotChange(ctx, group, item, fromEngine); err != nil {
		return err
	}

	// 2. Create the override before the policy that depends on it, and the suspended policy before the template.
	policy, spec, err := a.createPolicies(ctx, group, item)
	if err != nil {
		return err
	}
	if group.Template, err = a.createTemplate(ctx, item); err != nil {
		return err
	}

	// 3. Rehearse what the engine has rendered. Its copies of the policies may be late, so that only the end counts.
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := a.untilRendered(ctx, group, item); err != nil {
		return fmt.Errorf("%w; dispatching is still suspended by %s %s", err, item.PolicyKind(), policy.GetName())
	}

	// 4. Let the engine write.
	if spec.Suspension != nil {
		before, _ := policy.DeepCopyObject().(client.Object)
		spec.Suspension = nil
		if err := a.client.Patch(ctx, policy, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("lifting the suspension of %s %s: %w", item.PolicyKind(), policy.GetName(), err)
		}
	}
	return a.untilMarked(ctx, group, item)
}

// mustNotChange rehearses a group and returns an error that names the first field that would change.
func (a *adoption) mustNotChange(ctx context.Context, group adopt.Group, item *adopt.Item, fromEngine map[string]*unstructured.Unstructured) error {
	rehearsals, err := a.rehearse(ctx, group, item, fromEngine)
	if err != nil {
		return err
	}
	for _, r := range rehearsals {
		if r.err != nil {
			return fmt.Errorf("it cannot be rehearsed in cluster %s: %w", r.cluster, r.err)
		}
		if len(r.changes) > 0 {
			return fmt.Errorf("cluster %s would change: %s", r.cluster, r.changes[0].Describe(item.Key.Kind))
		}
	}
	return nil
}

// createPolicies creates the policies of a group, or finds those of an earlier attempt. It returns the one that places the template, and its spec.
func (a *adoption) createPolicies(ctx context.Context, group adopt.Group, item *adopt.Item) (client.Object, *policyv1alpha1.PropagationSpec, error) {
	if item.Key.Namespace != "" {
		if err := a.createNamespace(ctx); err != nil {
			return nil, nil, err
		}
	}
	if item.Override != nil {
		override := item.Override.DeepCopy()
		found, err := a.createOrGet(ctx, override)
		if err != nil {
			return nil, nil, err
		}
		if found && !apiequality.Semantic.DeepEqual(override.Spec, item.Override.Spec) {
			return nil, nil, fmt.Errorf("OverridePolicy %s exists and is another; delete it, or the clusters have changed since it was made", override.Name)
		}
	}
	policy, spec := item.NewPolicy()
	wanted := spec.DeepCopy()
	found, err := a.createOrGet(ctx, policy)
	switch {
	case err != nil:
		return nil, nil, err
	case !found:
		return policy, spec, nil
	case !samePropagation(spec, wanted):
		return nil, nil, fmt.Errorf("%s %s exists and is another; delete it, or the clusters have changed since it was made", item.PolicyKind(), policy.GetName())
	case group.Template == nil && (spec.Suspension == nil || !ptr.Deref(spec.Suspension.Dispatching, false)):
		return nil, nil, fmt.Errorf("%s %s exists and does not suspend dispatching, so that nothing could be checked; delete it first", item.PolicyKind(), policy.GetName())
	}
	return policy, spec, nil
}

// createNamespace creates the namespace in the federation, if it does not exist.
func (a *adoption) createNamespace(ctx context.Context) error {
	if a.namespaceExists.Load() {
		return nil
	}
	if err := a.client.Create(ctx, newNamespace(a.flags.namespace)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s in the federation: %w", a.flags.namespace, err)
	}
	a.namespaceExists.Store(true)
	return nil
}

// createOrGet creates an object, or reads the one of its name.
func (a *adoption) createOrGet(ctx context.Context, obj client.Object) (found bool, err error) {
	name := fmt.Sprintf("%s %s", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName())
	err = a.client.Create(ctx, obj)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return false, fmt.Errorf("creating %s: %w", name, err)
		}
		return false, nil
	}
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	return true, nil
}

// samePropagation compares the fields of two policies that plans set, but not the suspension.
func samePropagation(a, b *policyv1alpha1.PropagationSpec) bool {
	return apiequality.Semantic.DeepEqual(a.ResourceSelectors, b.ResourceSelectors) && apiequality.Semantic.DeepEqual(a.Placement, b.Placement) &&
		apiequality.Semantic.DeepEqual(a.DependentOverrides, b.DependentOverrides) && a.ConflictResolution == b.ConflictResolution
}

// createTemplate creates the template of a group, or reads that of an earlier attempt.
func (a *adoption) createTemplate(ctx context.Context, item *adopt.Item) (*unstructured.Unstructured, error) {
	created, err := a.create(ctx, item, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		resource, mapErr := a.resource(item.Key.GroupVersionKind)
		if mapErr != nil {
			return nil, mapErr
		}
		created, err = a.templates.Resource(resource).Namespace(item.Key.Namespace).Get(ctx, item.Key.Name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("creating the template: %w", err)
	}
	return created, nil
}

// workName is the name of an object's Works.
func workName(item *adopt.Item) string {
	return names.WorkName(item.Key.Kind, item.Key.Namespace, item.Key.Name)
}

// adoptionPoll is how often the state of the federation is read while waiting for it.
const adoptionPoll = 200 * time.Millisecond

// untilRendered waits until the engine has rendered the template for every cluster such that nothing changes.
func (a *adoption) untilRendered(ctx context.Context, group adopt.Group, item *adopt.Item) error {
	last := errors.New("the engine has not rendered it")
	err := a.works().Until(ctx, workName(item), func(ctx context.Context, seen workwatch.Seen) (bool, error) {
		fromEngine, missing, err := a.renderedSoFar(ctx, group, item, seen)
		if err != nil {
			return false, err
		}
		if missing != "" {
			last = fmt.Errorf("the engine has not rendered it for cluster %s", missing)
			return false, nil
		}
		last = a.mustNotChange(ctx, group, item, fromEngine)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// untilMarked waits until the engine has taken over the object in every cluster.
func (a *adoption) untilMarked(ctx context.Context, group adopt.Group, item *adopt.Item) error {
	resource, err := a.resource(item.Key.GroupVersionKind)
	if err != nil {
		return err
	}
	missing := ""
	err = a.works().Until(ctx, workName(item), func(ctx context.Context, _ workwatch.Seen) (bool, error) {
		for _, object := range group.Objects {
			if item.IsLeftOut(object.Cluster) {
				continue
			}
			missing = object.Cluster
			live, err := a.members[object.Cluster].Resource(resource).Namespace(item.Key.Namespace).Get(ctx, item.Key.Name, metav1.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("reading it in cluster %s: %w", object.Cluster, err)
			}
			if !adopt.IsCopy(live, group.Template) {
				return false, nil
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("the engine has not taken it over in cluster %s yet; it goes on", missing)
	}
	return err
}
