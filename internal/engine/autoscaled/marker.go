package autoscaled

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

var autoscalerKind = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}

// A target, or its autoscaler, may be in another cell, whose events do not come here.
const (
	absentRetry   = 30 * time.Second // for a target that does not exist
	markResync    = 10 * time.Minute // for a target that is marked
	markerTimeout = 30 * time.Second
)

// Rules returns the permissions that the Marker needs in other cells, through the gateway.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{autoscalerKind.Group}, Resources: []string{"horizontalpodautoscalers"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "replicasets", "statefulsets"}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"clonesets", "statefulsets"}, Verbs: []string{"get", "patch"}},
	}
}

// Marker labels the targets of propagated autoscalers.
type Marker struct {
	cell  *cell.Cell
	other dynamic.Interface // all cells through the gateway, nil without one
	queue *queue.Queue[target]
}

// target is the scale target of an autoscaler. Its version does not matter.
type target struct {
	schema.GroupKind
	cell.Key
}

// String returns kind and name, for messages.
func (t target) String() string { return t.Kind + " " + t.Key.String() }

// NewMarker returns a marker for the autoscalers of a cell. Federation is the gateway's view of all templates, nil if the cell is the only one.
func NewMarker(c *cell.Cell, federation *rest.Config) (*Marker, error) {
	m := &Marker{cell: c, queue: queue.New[target]("hpa-target-marker")}
	if federation != nil {
		var err error
		if m.other, err = dynamic.NewForConfig(federation); err != nil {
			return nil, fmt.Errorf("connecting to the gateway: %w", err)
		}
	}
	c.Templates.Subscribe(m.changed)
	return m, nil
}

// changed queues the targets of an autoscaler, and any template that may be a target.
func (m *Marker) changed(key cell.TemplateKey, old, now *cell.Template) {
	if key.GroupKind() == autoscalerKind {
		for _, template := range []*cell.Template{old, now} {
			if found, ok := targetOf(template); ok {
				m.queue.AddNow(found)
			}
		}
		return
	}
	changed := now != nil && key.Namespace != "" && (old == nil || retained(old) != retained(now))
	if changed && (retained(now) || len(m.autoscalers(key.Namespace)) > 0) {
		m.queue.Add(target{GroupKind: key.GroupKind(), Key: key.Key})
	}
}

func retained(t *cell.Template) bool { return t.Labels[names.RetainReplicasLabel] == "true" }

// targetOf returns the target of an autoscaler, if it has one.
func targetOf(autoscaler *cell.Template) (target, bool) {
	if autoscaler == nil {
		return target{}, false
	}
	obj, err := autoscaler.Object()
	if err != nil {
		return target{}, false
	}
	return targetIn(obj)
}

func targetIn(autoscaler *unstructured.Unstructured) (target, bool) {
	ref, _, err := fields.Strings(autoscaler.Object, "spec", "scaleTargetRef")
	if err != nil || ref["kind"] == "" || ref["name"] == "" {
		return target{}, false
	}
	gv, err := schema.ParseGroupVersion(ref["apiVersion"])
	if err != nil {
		return target{}, false
	}
	return target{GroupKind: gv.WithKind(ref["kind"]).GroupKind(), Key: cell.Key{Namespace: autoscaler.GetNamespace(), Name: ref["name"]}}, true
}

// autoscalers returns the autoscalers of a namespace in this cell.
func (m *Marker) autoscalers(namespace string) []*cell.Template {
	kind := m.cell.Templates.Served(autoscalerKind)
	if kind == nil {
		return nil
	}
	return m.cell.Templates.OfKind(kind.GroupVersionKind, namespace)
}

// Run marks targets until the context ends.
func (m *Marker) Run(ctx context.Context, workers int) { m.queue.Run(ctx, workers, m.Reconcile) }

// Reconcile labels a target, or removes the label of an autoscaler that no longer scales it. A label that a user has set stays.
func (m *Marker) Reconcile(ctx context.Context, key target) error {
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	kind := m.cell.Templates.Served(key.GroupKind)
	if kind == nil || !kind.Namespaced {
		return nil // a kind that becomes known brings events of its templates
	}
	obj, patch, err := m.find(ctx, kind, key)
	if err != nil || obj == nil {
		return err
	}
	scaler := m.scalerOf(key)
	marked, by := obj.GetLabels()[names.RetainReplicasLabel] == "true", obj.GetAnnotations()[names.AutoscaledByAnnotation]
	ours := obj.GetLabels()[names.AutoscaledLabel] == "true"
	switch {
	case scaler != "" && (!marked || ours && by != scaler || by == scaler && !ours):
		return patch(ctx, mark(obj, "true", scaler))
	case scaler == "" && (by != "" || ours):
		scales, err := m.scalesElsewhere(ctx, key, by)
		if err != nil {
			return err
		}
		if !scales {
			return patch(ctx, mark(obj, nil, nil))
		}
	}
	if by != "" || ours {
		return queue.Later{After: markResync}
	}
	return nil
}

// scalerOf returns the name of a propagated autoscaler in this cell that scales the target, or "".
func (m *Marker) scalerOf(key target) string {
	var scalers []string
	for _, autoscaler := range m.autoscalers(key.Namespace) {
		if autoscaler.Claim.Empty() || autoscaler.Deleting || autoscaler.Frozen {
			continue
		}
		if found, ok := targetOf(autoscaler); ok && found == key {
			scalers = append(scalers, autoscaler.Name)
		}
	}
	if len(scalers) == 0 {
		return ""
	}
	return slices.Min(scalers)
}

// scalesElsewhere asks whether a propagated autoscaler in another cell scales the target: the one with a name, or any if the name was lost.
func (m *Marker) scalesElsewhere(ctx context.Context, key target, name string) (bool, error) {
	kind := m.cell.Templates.Served(autoscalerKind)
	if m.other == nil || kind == nil {
		return false, nil
	}
	resource := m.other.Resource(kind.GVR()).Namespace(key.Namespace)
	if name == "" {
		list, err := resource.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("listing the HorizontalPodAutoscalers that may scale %s: %w", key, err)
		}
		return slices.ContainsFunc(list.Items, func(obj unstructured.Unstructured) bool { return scales(&obj, key) }), nil
	}
	obj, err := resource.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the HorizontalPodAutoscaler %s/%s that scales %s: %w", key.Namespace, name, key, err)
	}
	return scales(obj, key), nil
}

// scales reports whether an autoscaler is propagated and scales the target.
func scales(autoscaler *unstructured.Unstructured, key target) bool {
	found, ok := targetIn(autoscaler)
	return ok && found == key && autoscaler.GetDeletionTimestamp() == nil && !cell.ClaimOf(autoscaler.GetLabels(), autoscaler.GetAnnotations()).Empty()
}

// patchFunc sends a merge patch to an object that was found.
type patchFunc func(ctx context.Context, patch map[string]any) error

// find reads a target in this cell, or in another one, and returns how to patch it. A target that does not exist is nil.
func (m *Marker) find(ctx context.Context, kind *cell.Kind, key target) (*unstructured.Unstructured, patchFunc, error) {
	template := m.cell.Templates.Get(cell.TemplateKey{GroupVersionKind: kind.GroupVersionKind, Key: key.Key})
	if template != nil && !template.Frozen {
		obj, err := template.Object()
		return obj, func(ctx context.Context, patch map[string]any) error {
			return m.cell.PatchTemplate(ctx, template, patch)
		}, err
	}
	if m.other == nil {
		return nil, nil, nil
	}
	resource := m.other.Resource(kind.GVR()).Namespace(key.Namespace)
	obj, err := resource.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if m.scalerOf(key) == "" {
			return nil, nil, nil
		}
		return nil, nil, queue.Later{After: absentRetry}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return obj, func(ctx context.Context, patch map[string]any) error {
		body, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("patching %s: %w", key, err)
		}
		if _, err := resource.Patch(ctx, key.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: cell.FieldManager}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("patching %s: %w", key, err)
		}
		return nil
	}, nil
}

// mark returns the patch that sets the label and the annotation of a target, unless the target has changed. A nil removes.
func mark(obj *unstructured.Unstructured, retain, by any) map[string]any {
	return map[string]any{"metadata": map[string]any{
		"resourceVersion": obj.GetResourceVersion(),
		"labels":          map[string]any{names.RetainReplicasLabel: retain, names.AutoscaledLabel: retain},
		"annotations":     map[string]any{names.AutoscaledByAnnotation: by},
	}}
}
