package slots

import (
	"iter"
	"strings"
)

// Kinds is a set of kinds, lower-cased, as they end the names of bindings.
type Kinds map[string]struct{}

// NewKinds builds a set from kinds as the API spells them.
func NewKinds(kinds ...string) Kinds {
	set := make(Kinds, len(kinds))
	for _, kind := range kinds {
		set[strings.ToLower(kind)] = struct{}{}
	}
	return set
}

// Template is a template that may have given a binding its name.
type Template struct {
	// Name is the template's name, whose slot the binding takes.
	Name string
	// Kind is the template's kind in lower case.
	Kind string
}

// Templates yields the templates a binding called `<name>-<kind>` can stem from. Both parts may contain dashes ("a-b-c" is "a-b"
// of kind c, or "a" of a custom kind b-c), so there can be several; the one with the shortest kind, nearly always right, comes
// first. Nothing is yielded for a name that ends in no known kind: then every cell has to be asked.
//
// Names are what they are after lower-casing; templates in cells have lower-case names to begin with.
func (k Kinds) Templates(binding string) iter.Seq[Template] {
	return func(yield func(Template) bool) {
		for end := len(binding); ; {
			dash := strings.LastIndexByte(binding[:end], '-')
			if dash <= 0 {
				return
			}
			if _, known := k[binding[dash+1:]]; known && !yield(Template{Name: binding[:dash], Kind: binding[dash+1:]}) {
				return
			}
			end = dash
		}
	}
}

// OfBinding returns the distinct slots a binding can be in, the likeliest first; none if its name ends in no known kind.
func (k Kinds) OfBinding(namespace, binding string) []Slot {
	var found []Slot
next:
	for template := range k.Templates(binding) {
		slot := Of(namespace, template.Name)
		for _, seen := range found {
			if seen == slot {
				continue next
			}
		}
		found = append(found, slot)
	}
	return found
}
