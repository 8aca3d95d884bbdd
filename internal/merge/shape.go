package merge

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// shape is a type of a schema, compiled for merging. A nil shape is an unknown type.
type shape struct {
	name   string // of the type in the schema, if it has one
	object *objectShape
	list   *listShape
}

type objectShape struct {
	atomic bool // one value: its parts have no owners
	fields map[string]*shape
	values *shape // of fields that have no shape of their own
}

type listShape struct {
	kind  listKind
	keys  []listKey
	items *shape
}

type listKind int8

const (
	atomicList listKind = iota // one value
	setList                    // scalars that occur once
	keyedList                  // objects with key fields
	// additiveList is one value to the schema, but its entries do not depend on each other, and members are known to
	// add some.
	additiveList
)

type listKey struct {
	name         string
	defaultValue any
}

const (
	quantityType   = "io.k8s.apimachinery.pkg.api.resource.Quantity"
	tolerationType = "io.k8s.api.core.v1.Toleration"
)

// field returns the shape of a field.
func (s *shape) field(name string) *shape {
	if s == nil || s.object == nil {
		return nil
	}
	if field, ok := s.object.fields[name]; ok {
		return field
	}
	return s.object.values
}

func (s *shape) typeName() string {
	if s == nil {
		return ""
	}
	return s.name
}

func (s *shape) atomicObject() bool { return s != nil && s.object != nil && s.object.atomic }

// shapeOf returns the shape of a kind, or nil for one that no catalogue has.
func (m *Merger) shapeOf(gvk runtimeschema.GroupVersionKind) *shape {
	for _, catalogue := range m.catalogues {
		if shape := catalogue.shapeOf(gvk); shape != nil {
			return shape
		}
	}
	return nil
}

// builtIn is the catalogue of the kinds of Kubernetes. Its schema is large, so it is read only when first needed.
var builtIn = sync.OnceValue(func() *catalogue {
	return newCatalogue(applyconfigurations.NewTypeConverter(scheme.Scheme))
})

// catalogue compiles the types of one schema and keeps the result.
type catalogue struct {
	converter managedfields.TypeConverter

	mu     sync.RWMutex
	kinds  map[runtimeschema.GroupVersionKind]*shape
	shapes map[typeKey]*shape
}

// typeKey is a named type as referred to: a reference may make a type atomic that otherwise is not.
type typeKey struct {
	schema       *schema.Schema
	name         string
	relationship schema.ElementRelationship
}

func newCatalogue(converter managedfields.TypeConverter) *catalogue {
	return &catalogue{
		converter: converter,
		kinds:     map[runtimeschema.GroupVersionKind]*shape{},
		shapes:    map[typeKey]*shape{},
	}
}

func (c *catalogue) shapeOf(gvk runtimeschema.GroupVersionKind) *shape {
	c.mu.RLock()
	known, ok := c.kinds[gvk]
	c.mu.RUnlock()
	if ok {
		return known
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	var compiled *shape
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(gvk)
	if typed, err := c.converter.ObjectToTyped(empty); err == nil {
		compiled = c.compile(typed.Schema(), typed.TypeRef())
	}
	c.kinds[gvk] = compiled
	return compiled
}

func (c *catalogue) compile(types *schema.Schema, ref schema.TypeRef) *shape {
	atom, ok := types.Resolve(ref)
	if !ok {
		return nil
	}
	compiled := &shape{}
	if ref.NamedType != nil {
		key := typeKey{schema: types, name: *ref.NamedType}
		if ref.ElementRelationship != nil {
			key.relationship = *ref.ElementRelationship
		}
		if known, ok := c.shapes[key]; ok {
			return known
		}
		compiled.name = *ref.NamedType
		c.shapes[key] = compiled // before its parts: types may be recursive
	}
	if atom.Map != nil {
		compiled.object = c.compileObject(types, atom.Map)
	}
	if atom.List != nil {
		compiled.list = c.compileList(types, atom.List)
	}
	return compiled
}

func (c *catalogue) compileObject(types *schema.Schema, object *schema.Map) *objectShape {
	compiled := &objectShape{
		atomic: object.ElementRelationship == schema.Atomic,
		values: c.compile(types, object.ElementType),
	}
	if len(object.Fields) > 0 {
		compiled.fields = make(map[string]*shape, len(object.Fields))
	}
	for i := range object.Fields {
		compiled.fields[object.Fields[i].Name] = c.compile(types, object.Fields[i].Type)
	}
	return compiled
}

func (c *catalogue) compileList(types *schema.Schema, list *schema.List) *listShape {
	compiled := &listShape{items: c.compile(types, list.ElementType)}
	switch {
	case list.ElementRelationship != schema.Associative && compiled.items.typeName() == tolerationType:
		compiled.kind = additiveList
	case list.ElementRelationship != schema.Associative:
		compiled.kind = atomicList
	case len(list.Keys) == 0:
		compiled.kind = setList
	default:
		compiled.kind = keyedList
		element, _ := types.Resolve(list.ElementType)
		for _, name := range list.Keys {
			key := listKey{name: name}
			if element.Map != nil {
				if field, ok := element.FindField(name); ok {
					key.defaultValue = field.Default
				}
			}
			compiled.keys = append(compiled.keys, key)
		}
	}
	return compiled
}
