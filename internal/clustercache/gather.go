package clustercache

import (
	"slices"

	"github.com/cellplane/cellplane/internal/clustercache/ordered"
)

// gatherStep is how many keys are checked before the lock is released.
const gatherStep = 512

// gathering collects the keys of the objects that match a filter at one version, in order.
type gathering struct {
	store *Store
	matcher
	event uint64
	from  position
	limit int // 0 means none
	keys  []uint32

	reading reading
}

// source is an index with the terms to look up. Without an index it is all keys.
type source struct {
	set   *ordered.Set
	terms []uint32
	// cost is an estimate of the number of keys.
	cost int
}

func (g *gathering) run() error {
	if g.nothing {
		return nil
	}
	if g.namespace != "" && g.from.namespace < g.namespace {
		g.from = position{namespace: g.namespace}
	}
	if g.name != "" {
		return g.named()
	}
	g.store.mu.RLock()
	best := g.plan()
	g.store.mu.RUnlock()
	switch {
	case best.set == nil:
		return g.all()
	case len(best.terms) == 1:
		return g.term(best.set, best.terms[0], &g.keys)
	default:
		return g.merge(best)
	}
}

// plan chooses the index with the fewest keys to check. The caller holds the lock.
func (g *gathering) plan() source {
	s, a := g.store, &g.store.attributes
	best := source{cost: s.keys.Len() + 1}
	consider := func(set *ordered.Set, cost int, terms ...uint32) {
		if cost < best.cost {
			best = source{set: set, terms: terms, cost: cost}
		}
	}
	// No object has an unknown term.
	none := func() { consider(s.byNamespace, -1) }
	if !s.kind.Namespaced {
		consider(s.byNamespace, s.keys.Len(), 0)
	}
	if g.namespace != "" {
		if id, ok := s.namespaces.Lookup([]byte(g.namespace)); ok {
			consider(s.byNamespace, s.namespaces.Refs(id), id)
		} else {
			none()
		}
	}
	if g.owner != "" {
		if id, ok := a.owners.Lookup([]byte(g.owner)); ok {
			consider(a.byOwner, a.owners.Refs(id), id)
		} else {
			none()
		}
	}
	for _, r := range g.indexed {
		if !r.equal || r.value == "" {
			continue
		}
		if id, ok := a.values[r.i].Lookup([]byte(r.value)); ok {
			consider(a.byValue[r.i], a.values[r.i].Refs(id), id)
		} else {
			none()
		}
	}
	if g.labels == nil {
		return best
	}
	requirements, _ := g.labels.Requirements()
	for _, r := range requirements {
		if ids, cost, ok := s.clustersOf(r); ok {
			consider(a.byCluster, cost, ids...)
		}
		if sets, cost, ok := s.labelSetsOf(r); ok {
			// Looking up a set costs, too.
			consider(a.byLabels, cost+len(sets), sets...)
		}
	}
	return best
}

// named checks one name, in one namespace or in all.
func (g *gathering) named() error {
	s := g.store
	at := 0
	for more := true; more; {
		err := g.step(&g.keys, func(visit func(k uint32)) {
			namespaces := s.namespaceOrder
			if g.namespace != "" || !s.kind.Namespaced {
				id, known := s.namespaces.Lookup([]byte(g.namespace))
				namespaces = nil
				if known {
					namespaces = []uint32{id}
				}
			}
			end := min(at+gatherStep, len(namespaces))
			for ; at < end; at++ {
				s.keysNamed(s.namespaces.Get(namespaces[at]), []byte(g.name), func(k uint32) {
					if g.from.isZero() || s.compareTo(k, g.from) > 0 {
						visit(k)
					}
				})
			}
			more = at < len(namespaces)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// all checks all keys, namespace by namespace.
func (g *gathering) all() error {
	s := g.store
	at := g.from
	for more := true; more; {
		err := g.step(&g.keys, func(visit func(k uint32)) {
			looked := 0
			more = false
			var last uint32
			for _, namespace := range s.namespaceOrder[s.namespacePlace([]byte(at.namespace)):] {
				s.byNamespace.Ascend(namespace, s.upTo(at), func(k uint32) bool {
					more = looked == gatherStep
					if more {
						return false
					}
					looked++
					last = k
					visit(k)
					return true
				})
				if more {
					break
				}
			}
			if last != 0 {
				at = s.positionOf(last)
			}
		})
		if err != nil || g.full(g.keys) {
			return err
		}
	}
	return nil
}

// term checks the keys of a term.
func (g *gathering) term(set *ordered.Set, term uint32, keys *[]uint32) error {
	s := g.store
	at := g.from
	for more := true; more; {
		err := g.step(keys, func(visit func(k uint32)) {
			looked := 0
			more = false
			var last uint32
			set.Ascend(term, s.upTo(at), func(k uint32) bool {
				if g.namespace != "" && string(s.namespaces.Get(s.keys.At(k).namespace)) != g.namespace {
					return false // the first key of the next namespace
				}
				more = looked == gatherStep
				if more {
					return false
				}
				looked++
				last = k
				visit(k)
				return true
			})
			if last != 0 {
				at = s.positionOf(last)
			}
		})
		if err != nil || g.full(*keys) {
			return err
		}
	}
	return nil
}

// merge checks the keys of several terms. No term contributes more keys than the limit.
func (g *gathering) merge(from source) error {
	for _, term := range from.terms {
		var keys []uint32
		if err := g.term(from.set, term, &keys); err != nil {
			return err
		}
		g.keys = append(g.keys, keys...)
	}
	s := g.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.history.retains(g.event) {
		return s.expired(g.event)
	}
	slices.SortFunc(g.keys, s.compareKeys)
	// A key may have several of the terms.
	g.keys = slices.Compact(g.keys)
	if g.limit > 0 && len(g.keys) > g.limit {
		g.keys = g.keys[:g.limit]
	}
	return nil
}

func (g *gathering) full(keys []uint32) bool { return g.limit > 0 && len(keys) >= g.limit }

// step holds the lock while look visits keys, and adds those that match.
func (g *gathering) step(keys *[]uint32, look func(visit func(k uint32))) error {
	s := g.store
	start := len(*keys)
	g.reading.reset()
	s.mu.RLock()
	if !s.history.retains(g.event) {
		s.mu.RUnlock()
		return s.expired(g.event)
	}
	look(func(k uint32) {
		e := s.visible(k, g.event)
		if e == nil || !g.matches(s, e) {
			return
		}
		*keys = append(*keys, k)
		if len(g.distinct) > 0 {
			g.reading.load(s, e)
		}
	})
	s.mu.RUnlock()
	if len(g.distinct) > 0 {
		if err := g.checkDistinct(keys, start); err != nil {
			return err
		}
	}
	if g.full(*keys) {
		*keys = (*keys)[:g.limit]
	}
	return nil
}

// checkDistinct removes the keys from start on whose objects do not match on distinct fields.
func (g *gathering) checkDistinct(keys *[]uint32, start int) error {
	kept := (*keys)[:start]
	for i, k := range (*keys)[start:] {
		raw, err := g.reading.decode(g.store, i, g.event)
		if err != nil {
			return err
		}
		matches, err := g.distinctMatch(&g.store.fields, raw)
		if err != nil {
			return g.reading.damaged(i, err)
		}
		if matches {
			kept = append(kept, k)
		}
	}
	*keys = kept
	return nil
}
