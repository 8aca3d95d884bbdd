package fleet

import "iter"

// Listing is what a [Sink] has seen of a list, by the keys of objects. The zero value is ready for use. It has no lock: the sink has one.
type Listing[K comparable] struct {
	seen map[K]struct{} // nil while there is no list
}

// Begin starts a list. One that was not ended before is forgotten.
func (l *Listing[K]) Begin() { l.seen = map[K]struct{}{} }

// Saw notes that an object was set.
func (l *Listing[K]) Saw(key K) {
	if l.seen != nil {
		l.seen[key] = struct{}{}
	}
}

// End ends a list and returns the known objects that are gone.
func (l *Listing[K]) End(known iter.Seq[K]) []K {
	var gone []K
	for key := range known {
		if _, is := l.seen[key]; !is {
			gone = append(gone, key)
		}
	}
	l.seen = nil
	return gone
}
