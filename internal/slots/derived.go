package slots

import (
	"iter"
	"strings"
)

// Kinds is a set of kinds in lower case, which the names of bindings end with.
type Kinds map[string]struct{}

// NewKinds returns a set of kinds.
func NewKinds(kinds ...string) Kinds {
	set := make(Kinds, len(kinds))
	for _, kind := range kinds {
		set[strings.ToLower(kind)] = struct{}{}
	}
	return set
}

// Template is a template that a binding may be derived from.
type Template struct {
	// Name is the template's name. The binding takes its slot.
	Name string
	// Kind is the template's kind in lower case.
	Kind string
}

// Templates yields the templates that a binding called `<name>-<kind>` can be derived from. Both parts may contain dashes ("a-b-c" is "a-b"
// of kind c, or "a" of a custom kind b-c), so there can be several; the one with the shortest kind, nearly always the right one, comes
// first. It yields none if the name does not end in a known kind: then every cell has to be asked.
//
// The binding's name is in lower case, and so are the names of templates in cells.
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

// OfBinding returns the distinct slots that a binding can be in, the likeliest first; none if its name does not end in a known kind.
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
