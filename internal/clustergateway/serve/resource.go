package serve

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/generic"
	"github.com/cellplane/cellplane/internal/clustergateway/columns"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// resource is a store served in one group and version.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	cached     schema.GroupVersionKind
	store      *clustercache.Store
	namespaced bool
	printer    columns.Printer
	fields     map[string]string // field in selectors → field in the store
	// generic is set if objects are cached in the encoding of package generic. Then typed, if it is not nil, decodes them.
	generic bool
	typed   func(raw []byte) (runtime.Object, error)
	// anyKind is set if lists are of the kind List, as in Karmada's cache.
	anyKind bool
	// removed is closed when the resource is no longer served; nil if it always is.
	removed <-chan struct{}
	// convert converts a cached object to this version; nil if both are the same.
	convert func(runtime.Object) (runtime.Object, error)
}

// resources returns all groups and versions of a view.
func resources(view views.View, kind clustercache.Kind, store *clustercache.Store) []*resource {
	plain := &resource{
		GroupVersionResource: view.Resource,
		kind:                 kind.GroupVersionKind,
		cached:               kind.GroupVersionKind,
		store:                store,
		namespaced:           kind.Namespaced,
		printer:              columns.For(kind.GroupVersionKind.Kind),
		fields:               map[string]string{"metadata.name": "metadata.name"},
	}
	if plain.namespaced {
		plain.fields["metadata.namespace"] = "metadata.namespace"
	}
	for _, field := range kind.Fields {
		plain.fields[field.Name] = field.Name
	}
	all := []*resource{plain}
	for _, alias := range view.Aliases {
		other := *plain
		other.GroupVersionResource = alias
		other.kind = alias.GroupVersion().WithKind(kind.GroupVersionKind.Kind)
		if alias.Group == "events.k8s.io" {
			other.convert, other.fields = newEvent, newEventFields
		}
		all = append(all, &other)
	}
	return all
}

// unmarshaler is implemented by every Kubernetes object.
type unmarshaler interface{ Unmarshal(data []byte) error }

// decode decodes an object.
func (r *resource) decode(raw []byte) (runtime.Object, error) {
	object, err := r.decodeCached(raw)
	if err != nil || r.convert == nil {
		return object, err
	}
	converted, err := r.convert(object)
	if err != nil {
		return nil, err
	}
	converted.GetObjectKind().SetGroupVersionKind(r.kind)
	return converted, nil
}

func (r *resource) decodeCached(raw []byte) (runtime.Object, error) {
	if r.typed != nil {
		return r.typed(raw)
	}
	if r.generic {
		return generic.Decode(raw, r.cached)
	}
	object, err := clientscheme.Scheme.New(r.cached)
	if err != nil {
		return nil, err
	}
	message, ok := object.(unmarshaler)
	if !ok {
		return nil, fmt.Errorf("%s cannot be decoded", r.cached.Kind)
	}
	if err := message.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("decoding a %s: %w", r.cached.Kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(r.cached)
	return object, nil
}

// selector translates a field selector to the fields of the store.
func (r *resource) selector(given fields.Selector) (fields.Selector, error) {
	if given == nil {
		return nil, nil
	}
	return given.Transform(func(label, value string) (string, string, error) {
		name, ok := r.fields[label]
		if !ok {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return name, value, nil
	})
}
