package merge

import "maps"

// walk merges a manifest into a live object. Its methods return their input where nothing changes, and never modify it.
type walk struct {
	// removing is set if the manifest has changed since it was last written: then fields that we own and that it no
	// longer has are removed.
	removing bool
}

// value merges a value that both live and desired have.
func (w *walk) value(live, desired any, who owners, s *shape) (any, bool) {
	switch want := desired.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return desired, true
		}
		if s.atomicObject() && w.removing && who.oursAlone() {
			return replace(live, desired, s)
		}
		merged, changed := w.fields(have, want, who, s)
		return merged, changed
	case []any:
		have, ok := live.([]any)
		if !ok {
			return desired, true
		}
		return w.list(have, want, who, s)
	default:
		if equalScalars(live, desired, s) {
			return live, false
		}
		return desired, true
	}
}

// replace returns desired instead of live, unless they are equivalent.
func replace(live, desired any, s *shape) (any, bool) {
	if equal(live, desired, s) {
		return live, false
	}
	return desired, true
}

// fields merges the fields of an object, or the entries of a map.
func (w *walk) fields(live, desired map[string]any, who owners, s *shape) (map[string]any, bool) {
	e := edits{original: live}
	for name, want := range desired {
		if want == nil {
			continue // null asks for nothing
		}
		have, exists := live[name]
		if !exists || have == nil {
			if w.removing || !isEmpty(want) {
				e.set(name, want)
			}
			continue
		}
		if merged, changed := w.value(have, want, who.field(name), s.field(name)); changed {
			e.set(name, merged)
		}
	}
	if w.removing && who.oursBelow() {
		for name, have := range live {
			if desired[name] != nil {
				continue
			}
			remains, changed := w.subtract(have, who.field(name), s.field(name))
			switch {
			case !changed:
			case remains == nil:
				e.remove(name)
			default:
				e.set(name, remains)
			}
		}
	}
	for _, name := range ruledOut(live, desired, s.typeName()) {
		e.remove(name)
	}
	return e.result(), e.changed
}

// subtract removes what we own from a live value. It returns the rest, or nil.
func (w *walk) subtract(live any, who owners, s *shape) (any, bool) {
	if !who.oursBelow() {
		return live, false
	}
	if who.leafOfOurs() {
		if len(who.others) > 0 {
			return live, false
		}
		return nil, true
	}
	switch have := live.(type) {
	case map[string]any:
		if s.atomicObject() {
			return live, false // owned in parts: the member's schema differs from ours, and is right
		}
		merged, changed := w.fields(have, nil, who, s)
		if len(merged) == 0 && len(who.others) == 0 {
			return nil, true
		}
		return merged, changed
	case []any:
		merged, changed := w.list(have, nil, who, s)
		if list, _ := merged.([]any); len(list) == 0 && len(who.others) == 0 {
			return nil, true
		}
		return merged, changed
	default:
		if who.oursAlone() {
			return nil, true
		}
		return live, false
	}
}

// isEmpty reports whether an API server may drop the value.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return false
	}
}

// edits is a map that is copied at its first change.
type edits struct {
	original map[string]any
	copied   map[string]any
	changed  bool
}

func (e *edits) set(name string, value any) {
	e.copy()
	e.copied[name] = value
}

func (e *edits) remove(name string) {
	e.copy()
	delete(e.copied, name)
}

func (e *edits) copy() {
	if e.changed {
		return
	}
	e.changed = true
	if e.copied = maps.Clone(e.original); e.copied == nil {
		e.copied = map[string]any{}
	}
}

func (e *edits) result() map[string]any {
	if e.changed {
		return e.copied
	}
	return e.original
}
