package clustercache

import "math"

// take stores a prepared object. probably is its key, or 0 if there was none recently. The caller holds the lock.
func (s *Store) take(c *cluster, probably uint32, p *prepared) error {
	k, name := probably, s.qualified(p.object.Name, c.name)
	if k == 0 || !s.isKey(k, p.object.Namespace, name) {
		var err error
		if k, err = s.ensureKey(p.object.Namespace, name); err != nil {
			return err
		}
	}
	before := s.of(k, c.id)
	var like *terms
	if before != 0 {
		like = &s.entries.At(before).terms
	}
	id, err := s.newEntry(k, p, like)
	if err != nil {
		s.releaseKey(k)
		return err
	}
	c.fed = true
	s.settle(k, before, id)
	return nil
}

// settle decides which entry of a key is shown after a member's entry was replaced by another; either may be 0. The old entry is removed
// once it is visible at no version.
func (s *Store) settle(k, gone, come uint32) {
	shown := s.shownOf(k)
	if gone != 0 && gone != shown {
		s.forget(gone)
		gone = 0
	}
	best := s.bestOf(k, gone)
	switch {
	case best == shown:
	case shown == 0:
		s.emit(0, best)
	case shown == gone && best == come && best != 0 && s.entries.At(gone).uid == s.entries.At(come).uid:
		s.emit(gone, come)
	default:
		if shown != gone {
			s.keepShadowed(shown)
		}
		// To clients it is another object of the same name: one is deleted and one added.
		s.emit(shown, 0)
		if best != 0 {
			s.emit(0, best)
		}
	}
	s.history.trim(s.pins.min(), s.forget)
}

// shownOf returns the entry of a key that is shown now, or 0.
func (s *Store) shownOf(k uint32) uint32 {
	for id := s.keys.At(k).head; id != 0; id = s.entries.At(id).next {
		if e := s.entries.At(id); e.died == never && e.born != unborn {
			return id
		}
	}
	return 0
}

// bestOf returns the current entry of a key to show, or 0: the one created first, or of the first cluster by name; a template only if no
// member has any.
func (s *Store) bestOf(k, but uint32) uint32 {
	var best uint32
	for id := s.keys.At(k).head; id != 0; id = s.entries.At(id).next {
		e := s.entries.At(id)
		if id == but || e.died != never {
			continue
		}
		if best == 0 || s.precedes(e, s.entries.At(best)) {
			best = id
		}
	}
	return best
}

func (s *Store) precedes(a, b *entry) bool {
	nameA, nameB := s.clusterIDs[a.terms.cluster].name, s.clusterIDs[b.terms.cluster].name
	if (nameA == templatesName) != (nameB == templatesName) {
		return nameB == templatesName
	}
	if a.created != b.created {
		return a.created < b.created
	}
	return nameA < nameB
}

// emit shows one entry instead of another; either may be 0.
func (s *Store) emit(before, after uint32) {
	n := s.history.add(record{before, after, (before == 0 || after == 0) && s.contested(max(before, after))})
	if before != 0 {
		e := s.entries.At(before)
		e.died = n
		s.clusterIDs[e.terms.cluster].objects--
		s.shown--
		s.encodedBytes -= int64(e.size)
	}
	if after != 0 {
		e := s.entries.At(after)
		e.born = n
		s.clusterIDs[e.terms.cluster].shadowed--
		s.shadowed--
		s.shown++
	}
}

// contested reports whether other members have entries of the same key, or had within the history.
func (s *Store) contested(id uint32) bool {
	e := s.entries.At(id)
	for other := s.keys.At(e.key).head; other != 0; other = s.entries.At(other).next {
		if s.entries.At(other).terms.cluster != e.terms.cluster {
			return true
		}
	}
	return false
}

// newEntry creates an entry of a prepared object, not shown yet. Its terms are probably those of the entry it replaces, if any.
func (s *Store) newEntry(k uint32, p *prepared, like *terms) (id uint32, err error) {
	t := s.templates
	defer func() {
		if err != nil && p.generation != nil {
			t.codec.Release(p.generation)
		}
	}()
	if p.template != 0 && t.table.At(p.template).serial != p.serial {
		// The template was removed since. That is rare enough to compress under the lock.
		p.becomeTemplate(t)
	}
	blob, err := s.arena.Put(p.difference)
	if err != nil {
		return 0, err
	}
	found, err := s.attributes.acquire(p, like)
	if err != nil {
		s.arena.Free(blob)
		return 0, err
	}
	template := p.template
	if template != 0 {
		t.retain(template)
	} else if template, err = t.add(p.group, p.edited, p.compressed, p.generation); err != nil {
		s.attributes.release(found)
		s.arena.Free(blob)
		return 0, err
	}
	return s.link(k, entry{
		uid: p.uid, version: p.version, hashed: p.hashed, blob: blob, template: template, terms: found,
		created: uint32(min(max(p.object.Created, 0), math.MaxUint32)), size: uint32(len(p.edited)), seen: p.cluster.pass,
	}), nil
}

// keepShadowed copies an entry that is no longer shown but still exists in its member.
func (s *Store) keepShadowed(id uint32) {
	// Without memory for the copy the object is missing until its member is listed again.
	_, _ = s.copy(id)
}

// mark sets or removes the stale mark of an object.
func (s *Store) mark(id, since uint32) {
	if s.entries.At(id).born == unborn {
		s.entries.At(id).stale = since // objects that are not shown are not watched
		return
	}
	marked, err := s.copy(id)
	if err != nil {
		return // without memory for the copy the object stays as it is
	}
	s.entries.At(marked).stale = since
	s.emit(id, marked)
	s.history.trim(s.pins.min(), s.forget)
}

// copy copies an entry. The copy is not shown yet.
func (s *Store) copy(id uint32) (uint32, error) {
	e := *s.entries.At(id)
	blob, err := s.arena.Put(s.arena.Get(e.blob))
	if err != nil {
		return 0, err
	}
	e.blob = blob
	s.attributes.retain(e.terms)
	s.templates.retain(e.template)
	return s.link(e.key, e), nil
}

// link adds an entry that is not shown to its key.
func (s *Store) link(k uint32, e entry) uint32 {
	e.key, e.born, e.died = k, unborn, never
	s.attributes.index(k, e.terms, s.othersOf(k, 0))
	e.next = s.keys.At(k).head
	id := s.entries.New()
	*s.entries.At(id) = e
	s.keys.At(k).head = id
	c := s.clusterIDs[e.terms.cluster]
	c.objects++
	c.shadowed++
	s.shadowed++
	s.encodedBytes += int64(e.size)
	return id
}

// forget removes an entry that is visible at no version.
func (s *Store) forget(id uint32) {
	e := *s.entries.At(id)
	if e.died == never {
		c := s.clusterIDs[e.terms.cluster]
		c.objects--
		c.shadowed--
		s.shadowed--
		s.encodedBytes -= int64(e.size)
	}
	at := &s.keys.At(e.key).head
	for *at != id {
		at = &s.entries.At(*at).next
	}
	*at = e.next
	s.attributes.unindex(e.key, e.terms, s.othersOf(e.key, id))
	s.attributes.release(e.terms)
	s.arena.Free(e.blob)
	s.templates.release(e.template)
	s.entries.Free(id)
	s.releaseKey(e.key)
}

// othersOf reports whether another entry of the key has a term.
func (s *Store) othersOf(k, but uint32) func(func(*terms) bool) bool {
	return func(has func(*terms) bool) bool {
		for id := s.keys.At(k).head; id != 0; id = s.entries.At(id).next {
			if id != but && has(&s.entries.At(id).terms) {
				return true
			}
		}
		return false
	}
}
