package cell

import (
	"maps"
	"slices"
)

// keySet is a set of keys. Most sets of an index are small, for which a map takes too much memory; some have nearly all
// keys.
type keySet struct {
	few  []Key
	many map[Key]struct{} // replaces few
}

// mostOfFew is the size up to which a list is as fast as a map.
const mostOfFew = 8

func (s *keySet) add(key Key) {
	switch {
	case s.many != nil:
		s.many[key] = struct{}{}
	case slices.Contains(s.few, key):
	case len(s.few) < mostOfFew:
		s.few = append(s.few, key)
	default:
		s.many = map[Key]struct{}{key: {}}
		for _, known := range s.few {
			s.many[known] = struct{}{}
		}
		s.few = nil
	}
}

// remove reports whether the set is empty now. A nil set is empty.
func (s *keySet) remove(key Key) (empty bool) {
	if s == nil {
		return false
	}
	if i := slices.Index(s.few, key); i >= 0 {
		s.few = slices.Delete(s.few, i, i+1)
	}
	delete(s.many, key)
	return len(s.few) == 0 && len(s.many) == 0
}

// all returns the keys, in no order. A nil set has none.
func (s *keySet) all() []Key {
	if s == nil {
		return []Key{}
	}
	return slices.AppendSeq(slices.Clone(s.few), maps.Keys(s.many))
}
