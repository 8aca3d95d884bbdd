package dependencies

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// store is where bindings are attached: this cell, the other cells, or the hub.
type store interface {
	// binding returns a binding, nil if there is none.
	binding(ctx context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error)
	create(ctx context.Context, binding *workv1alpha2.ResourceBinding) error
	update(ctx context.Context, binding *workv1alpha2.ResourceBinding) error
	remove(ctx context.Context, binding *workv1alpha2.ResourceBinding) error
	// attached returns the bindings with the label of a dependent, and whether the result is complete.
	attached(label string) ([]*workv1alpha2.ResourceBinding, bool)
	// mark returns a label for all bindings attached in the store, or "".
	mark() string
}

// dependency is an object that a template refers to.
type dependency struct {
	cell.TemplateKey
	// uid and version are empty for objects in other control planes. The engine there sets them.
	uid     types.UID
	version string
	in      store
}

// local is this cell.
type local struct{ *cell.Cell }

func (h local) binding(_ context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error) {
	return h.Binding(key), nil
}

func (h local) create(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := h.CreateBinding(ctx, binding)
	return err
}

func (h local) update(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := h.UpdateBinding(ctx, binding)
	return err
}

func (h local) remove(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	return h.DeleteBinding(ctx, binding)
}

func (h local) attached(label string) ([]*workv1alpha2.ResourceBinding, bool) {
	return h.BindingsLabelled(label), true
}

func (h local) mark() string { return "" }

// template returns a template, nil if it does not exist or belongs to another cell.
func (h local) template(key cell.TemplateKey) *dependency { return h.outline(h.Templates.Get(key)) }

// templates returns the templates of a kind and namespace with matching labels.
func (h local) templates(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) []*dependency {
	var found []*dependency
	for _, t := range h.Templates.OfKind(gvk, namespace) {
		if one := h.outline(t); one != nil && selector.Matches(labels.Set(t.Labels)) {
			found = append(found, one)
		}
	}
	return found
}

func (h local) outline(t *cell.Template) *dependency {
	if t == nil || t.Deleting || t.Frozen {
		return nil
	}
	return &dependency{TemplateKey: t.Key(), uid: t.UID, version: t.Version, in: h}
}
