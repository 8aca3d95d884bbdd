package dependencies

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// Router finds the cell that holds an object: what a template refers to may live in another one.
type Router interface {
	// ForObject returns the cell that holds the objects of a name.
	ForObject(namespace, name string) Holder
	// All returns all cells.
	All() []Holder
}

// Holder is a cell as far as dependencies are concerned.
type Holder interface {
	// Template returns a template, nil if there is none.
	Template(ctx context.Context, key cell.TemplateKey) (*Template, error)
	// Templates returns the templates of a kind and namespace with matching labels.
	Templates(ctx context.Context, gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*Template, error)
	// Binding returns a binding, nil if there is none.
	Binding(ctx context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error)
	// Attached returns the bindings that carry a label.
	Attached(ctx context.Context, label string) ([]*workv1alpha2.ResourceBinding, error)
	CreateBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, error)
	UpdateBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, error)
	DeleteBinding(ctx context.Context, binding *workv1alpha2.ResourceBinding) error
}

// Template is what an attached binding says about its template.
type Template struct {
	Key     cell.TemplateKey
	UID     types.UID
	Version string
}

// Alone is the Router of a cell that holds everything.
func Alone(c *cell.Cell) Router { return alone{c} }

type alone struct{ *cell.Cell }

// ForObject returns the only cell.
func (a alone) ForObject(string, string) Holder { return a }

// All returns the only cell.
func (a alone) All() []Holder { return []Holder{a} }

// Template returns a template, nil if there is none.
func (a alone) Template(_ context.Context, key cell.TemplateKey) (*Template, error) {
	return outline(a.Cell.Templates.Get(key)), nil
}

// Templates returns the templates of a kind and namespace with matching labels.
func (a alone) Templates(_ context.Context, gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*Template, error) {
	var found []*Template
	for _, t := range a.Cell.Templates.OfKind(gvk, namespace) {
		if selector.Matches(labels.Set(t.Labels)) && !t.Deleting {
			found = append(found, outline(t))
		}
	}
	return found, nil
}

func outline(t *cell.Template) *Template {
	if t == nil || t.Deleting || t.Frozen {
		return nil
	}
	return &Template{Key: t.Key(), UID: t.UID, Version: t.Version}
}

// Binding returns a binding, nil if there is none.
func (a alone) Binding(_ context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error) {
	return a.Cell.Binding(key), nil
}

// Attached returns the bindings that carry a label.
func (a alone) Attached(_ context.Context, label string) ([]*workv1alpha2.ResourceBinding, error) {
	return a.Cell.BindingsLabelled(label), nil
}
