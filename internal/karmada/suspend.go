package karmada

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// poll is how often Works are read while waiting for Karmada.
const poll = 200 * time.Millisecond

// before is what a policy or binding had before it was suspended.
type before struct {
	Suspension *policyv1alpha1.Suspension `json:"suspension,omitempty"`
	Preserve   *bool                      `json:"preserveResourcesOnDeletion,omitempty"`
	// Returned is set on a binding that was given back and waits for its policy, which still holds others.
	Returned bool `json:"returned,omitempty"`
	// Suspensions counts on a policy how often one of its workloads was suspended. So a policy changes with each, and is not restored beside it.
	Suspensions int `json:"suspensions,omitempty"`
}

// Suspend suspends the dispatching of a workload, and waits until Karmada has confirmed it for every cluster.
func (p *ControlPlane) Suspend(ctx context.Context, w *Workload) error {
	// The binding says that the workload is handed over, so that a policy is not given back while it is.
	// Its original settings are those of its policy, which Karmada may have carried to it already, for another workload.
	var original *before
	if w.Policy != nil {
		var err error
		if original, err = beforeOf(w.Policy); err != nil {
			return err
		}
		if original == nil {
			settings, _ := now(w.Policy)
			original = &settings
		}
	}
	if err := p.suspendBinding(ctx, w.Binding, original); err != nil {
		return err
	}
	if w.Policy != nil {
		if err := p.suspendPolicy(ctx, w.Policy); err != nil {
			return err
		}
	}
	missing := ""
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (done bool, err error) {
		missing, err = p.Dispatching(ctx, w)
		return missing == "", err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("karmada has not suspended dispatching to cluster %s yet; do its controllers run?", missing)
	}
	return err
}

// Dispatching returns a cluster to which Karmada may still write the workload, or in which it might delete it, "" if there is none.
func (p *ControlPlane) Dispatching(ctx context.Context, w *Workload) (cluster string, err error) {
	for _, target := range w.Targets() {
		work, err := p.Work(ctx, w, target.Name)
		if err != nil {
			return "", err
		}
		if work == nil || !ptr.Deref(work.Spec.SuspendDispatching, false) || !ptr.Deref(work.Spec.PreserveResourcesOnDeletion, false) ||
			!meta.IsStatusConditionFalse(work.Status.Conditions, names.WorkDispatching) {
			return target.Name, nil
		}
	}
	return "", nil
}

// HandedOver reports whether a workload was suspended and not given back. One that is damaged counts as handed over.
func HandedOver(w *Workload) bool {
	saved, err := beforeOf(w.Binding)
	return err != nil || saved != nil && !saved.Returned
}

// Changed reports whether anything is left of a hand-over in the binding of a workload or its policy.
func Changed(w *Workload) bool {
	return w.Binding.Annotations[names.HandedOverAnnotation] != "" || PolicyChanged(w)
}

// PolicyChanged reports whether the policy of a workload is suspended by a hand-over, of this workload or another.
func PolicyChanged(w *Workload) bool {
	return w.Policy != nil && w.Policy.GetAnnotations()[names.HandedOverAnnotation] != ""
}

// Original returns the settings of the policy as they were before the hand-over.
func Original(policy client.Object) (client.Object, error) {
	original := policy.DeepCopyObject().(client.Object)
	saved, err := beforeOf(original)
	if err != nil || saved == nil {
		return original, err
	}
	suspension, preserve := settings(original)
	*suspension, *preserve = saved.Suspension, saved.Preserve
	return original, nil
}

// settings returns the fields that a hand-over changes.
func settings(policy client.Object) (suspension **policyv1alpha1.Suspension, preserve **bool) {
	switch policy := policy.(type) {
	case *policyv1alpha1.PropagationPolicy:
		return &policy.Spec.Suspension, &policy.Spec.PreserveResourcesOnDeletion
	case *policyv1alpha1.ClusterPropagationPolicy:
		return &policy.Spec.Suspension, &policy.Spec.PreserveResourcesOnDeletion
	default:
		panic(fmt.Sprintf("%T is no propagation policy", policy))
	}
}

// now returns the settings of a policy or binding, and whether dispatching is suspended.
func now(obj client.Object) (now before, suspended bool) {
	if binding, is := obj.(*workv1alpha2.ResourceBinding); is {
		now.Preserve = binding.Spec.PreserveResourcesOnDeletion
		if binding.Spec.Suspension != nil {
			now.Suspension = binding.Spec.Suspension.Suspension.DeepCopy()
		}
	} else {
		suspension, preserve := settings(obj)
		now = before{Suspension: *suspension, Preserve: *preserve}
	}
	return now, now.Suspension != nil && ptr.Deref(now.Suspension.Dispatching, false) && ptr.Deref(now.Preserve, false)
}

func beforeOf(obj client.Object) (*before, error) {
	text := obj.GetAnnotations()[names.HandedOverAnnotation]
	if text == "" {
		return nil, nil
	}
	saved := &before{}
	if err := json.Unmarshal([]byte(text), saved); err != nil {
		return nil, fmt.Errorf("annotation %s of %s in Karmada is damaged: %w", names.HandedOverAnnotation, obj.GetName(), err)
	}
	return saved, nil
}

// suspendBinding suspends dispatching in a binding. Without original settings, those that it has are kept.
func (p *ControlPlane) suspendBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding, original *before) error {
	return p.edit(ctx, binding, "suspended the binding", func() (map[string]any, error) {
		settings, suspended := now(binding)
		saved, err := beforeOf(binding)
		switch {
		case err != nil:
			return nil, err
		case saved != nil && !saved.Returned && suspended:
			return nil, nil
		case saved == nil && original != nil:
			saved = &before{Suspension: original.Suspension, Preserve: original.Preserve}
		case saved == nil:
			saved = &settings
		}
		saved.Returned = false
		return suspension(saved)
	})
}

// suspendPolicy suspends dispatching in a policy.
func (p *ControlPlane) suspendPolicy(ctx context.Context, policy client.Object) error {
	p.policies.Lock()
	defer p.policies.Unlock()
	return p.edit(ctx, policy, "suspended the policy", func() (map[string]any, error) {
		saved, err := beforeOf(policy)
		if err != nil {
			return nil, err
		}
		if saved == nil {
			settings, _ := now(policy)
			saved = &settings
		}
		saved.Suspensions++
		return suspension(saved)
	})
}

// suspension is the patch that suspends dispatching and keeps deletions from reaching clusters.
func suspension(saved *before) (map[string]any, error) {
	text, err := json.Marshal(saved)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{names.HandedOverAnnotation: string(text)}},
		"spec":     map[string]any{"suspension": map[string]any{"dispatching": true, "dispatchingOnClusters": nil}, "preserveResourcesOnDeletion": true},
	}, nil
}

// Resume gives a workload back to Karmada. If its policy still holds others that the federation has, Karmada does not dispatch it before the last of
// them is given back; then waiting is true.
func (p *ControlPlane) Resume(ctx context.Context, w *Workload) (waiting bool, err error) {
	// 1. Note that it is given back.
	if err := p.edit(ctx, w.Binding, "gave back the binding", func() (map[string]any, error) {
		saved, err := beforeOf(w.Binding)
		if err != nil || saved == nil || saved.Returned {
			return nil, err
		}
		saved.Returned = true
		text, err := json.Marshal(saved)
		if err != nil {
			return nil, err
		}
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{names.HandedOverAnnotation: string(text)}}}, nil
	}); err != nil {
		return false, err
	}
	if w.Policy == nil {
		return false, p.restoreBinding(ctx, w.Binding)
	}

	// 2. If it was the last one, restore the policy and then all its bindings.
	bindings, err := p.restorePolicy(ctx, w)
	if err != nil || bindings == nil {
		return err == nil, err
	}
	for _, binding := range bindings {
		if err := p.restoreBinding(ctx, binding); err != nil {
			return false, err
		}
	}
	return false, nil
}

// restorePolicy sets the policy of a workload back to what it was, and returns its bindings. It does nothing and returns nil if one of them is
// handed over.
func (p *ControlPlane) restorePolicy(ctx context.Context, w *Workload) (bindings []*workv1alpha2.ResourceBinding, err error) {
	p.policies.Lock()
	defer p.policies.Unlock()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		// The policy is read before its bindings: whoever hands one over meanwhile changes it.
		if err := p.refresh(ctx, w.Policy); err != nil {
			return err
		}
		bindings = []*workv1alpha2.ResourceBinding{}
		for _, key := range w.Peers {
			if key.Namespace == "" {
				continue // bindings of cluster-scoped templates follow the policy
			}
			binding := &workv1alpha2.ResourceBinding{}
			if err := p.Client.Get(ctx, key, binding); client.IgnoreNotFound(err) != nil {
				return err
			} else if err == nil {
				bindings = append(bindings, binding)
			}
		}
		if slices.ContainsFunc(bindings, func(b *workv1alpha2.ResourceBinding) bool { return HandedOver(&Workload{Binding: b}) }) {
			bindings = nil
			return nil
		}
		saved, err := beforeOf(w.Policy)
		if err != nil || saved == nil {
			return err
		}
		return p.patch(ctx, w.Policy, "restored the policy", restored(saved, saved.Suspension != nil))
	})
	if err != nil {
		return nil, fmt.Errorf("restoring the policy %s in Karmada: %w", w.Policy.GetName(), err)
	}
	return bindings, nil
}

// restoreBinding sets a binding that was given back to what it was.
func (p *ControlPlane) restoreBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	return p.edit(ctx, binding, "restored the binding", func() (map[string]any, error) {
		saved, err := beforeOf(binding)
		if err != nil || saved == nil || !saved.Returned {
			return nil, err
		}
		return restored(saved, saved.Suspension != nil || binding.Spec.Suspension != nil && binding.Spec.Suspension.Scheduling != nil), nil
	})
}

// restored is the patch that restores original settings. The suspension is removed, unless some of it stays.
func restored(saved *before, stays bool) map[string]any {
	spec := map[string]any{"suspension": nil, "preserveResourcesOnDeletion": saved.Preserve}
	if stays {
		original := ptr.Deref(saved.Suspension, policyv1alpha1.Suspension{})
		spec["suspension"] = map[string]any{"dispatching": original.Dispatching, "dispatchingOnClusters": original.DispatchingOnClusters}
	}
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{names.HandedOverAnnotation: nil}}, "spec": spec}
}

// edit patches an object in the version that was read. If somebody else has changed it, it is read again. A nil patch changes nothing.
func (p *ControlPlane) edit(ctx context.Context, obj client.Object, what string, change func() (map[string]any, error)) error {
	first := true
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if !first {
			if err := p.refresh(ctx, obj); err != nil {
				return err
			}
		}
		first = false
		body, err := change()
		if err != nil || body == nil {
			return err
		}
		return p.patch(ctx, obj, what, body)
	})
	if err != nil {
		return fmt.Errorf("changing %s in Karmada: %w", obj.GetName(), err)
	}
	return nil
}

// patch patches an object, unless somebody else has changed it.
func (p *ControlPlane) patch(ctx context.Context, obj client.Object, what string, change map[string]any) error {
	change["metadata"].(map[string]any)["resourceVersion"] = obj.GetResourceVersion()
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	if err := p.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body)); err != nil || p.Wrote == nil {
		return err
	}
	return p.Wrote(what)
}

// refresh reads an object again. Nothing of what it was stays in it.
func (p *ControlPlane) refresh(ctx context.Context, obj client.Object) error {
	fresh := reflect.New(reflect.TypeOf(obj).Elem())
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(obj), fresh.Interface().(client.Object)); err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(fresh.Elem())
	return nil
}
