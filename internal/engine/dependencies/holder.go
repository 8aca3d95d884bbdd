package dependencies

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// holder is where bindings are attached: this cell, the other cells, or the hub.
type holder interface {
	// binding returns a binding, nil if there is none.
	binding(ctx context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error)
	create(ctx context.Context, binding *workv1alpha2.ResourceBinding) error
	update(ctx context.Context, binding *workv1alpha2.ResourceBinding) error
	remove(ctx context.Context, binding *workv1alpha2.ResourceBinding) error
	// attached returns the bindings that carry the label of one that needs them, and whether these are all.
	attached(label string) ([]*workv1alpha2.ResourceBinding, bool)
	// mark is a label for all bindings attached there; "" means none.
	mark() string
}

// dependency is what a template refers to.
type dependency struct {
	cell.TemplateKey
	// uid and version are empty for what lives elsewhere: its own engine fills them in when it is there.
	uid     types.UID
	version string
	in      holder
}

// home is the cell itself.
type home struct{ *cell.Cell }

func (h home) binding(_ context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error) {
	return h.Binding(key), nil
}

func (h home) create(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := h.CreateBinding(ctx, binding)
	return err
}

func (h home) update(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := h.UpdateBinding(ctx, binding)
	return err
}

func (h home) remove(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	return h.DeleteBinding(ctx, binding)
}

func (h home) attached(label string) ([]*workv1alpha2.ResourceBinding, bool) {
	return h.BindingsLabelled(label), true
}

func (h home) mark() string { return "" }

// template returns a template, nil if there is none that belongs to this cell.
func (h home) template(key cell.TemplateKey) *dependency { return h.outline(h.Templates.Get(key)) }

// templates returns the templates of a kind and namespace with matching labels.
func (h home) templates(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) []*dependency {
	var found []*dependency
	for _, t := range h.Templates.OfKind(gvk, namespace) {
		if one := h.outline(t); one != nil && selector.Matches(labels.Set(t.Labels)) {
			found = append(found, one)
		}
	}
	return found
}

func (h home) outline(t *cell.Template) *dependency {
	if t == nil || t.Deleting || t.Frozen {
		return nil
	}
	return &dependency{TemplateKey: t.Key(), uid: t.UID, version: t.Version, in: h}
}
