package clustercache

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache/ordered"
	"github.com/cellplane/cellplane/internal/clustercache/slab"
	"github.com/cellplane/cellplane/internal/clustercache/wire"
)

// attributes are the interned and indexed properties of entries.
//
// Labels are interned as sets: the pods of a workload have the same ones. The index maps labels to sets and sets to keys, which takes an
// eighth of the memory of an index from labels to keys.
type attributes struct {
	labels    *slab.Interner // one label: key, separator, value
	labelSets *slab.Interner // numbers of labels, four bytes each, sorted by key
	fieldSets *slab.Interner
	owners    *slab.Interner
	values    [maxIndexed]*slab.Interner

	// setsByLabel maps labels to sets; all others map a term to keys.
	setsByLabel *ordered.Set
	byLabels    *ordered.Set
	byOwner     *ordered.Set
	byValue     [maxIndexed]*ordered.Set
	byCluster   *ordered.Set

	scratch, labelScratch []byte
}

func (a *attributes) init(arena *slab.Arena, compareKeys func(a, b uint32) int) {
	a.labels, a.labelSets, a.fieldSets, a.owners = slab.NewInterner(arena), slab.NewInterner(arena), slab.NewInterner(arena), slab.NewInterner(arena)
	a.setsByLabel = ordered.NewSet(cmp.Compare[uint32])
	a.byLabels, a.byOwner, a.byCluster = ordered.NewSet(compareKeys), ordered.NewSet(compareKeys), ordered.NewSet(compareKeys)
	for i := range maxIndexed {
		a.values[i], a.byValue[i] = slab.NewInterner(arena), ordered.NewSet(compareKeys)
	}
}

func (a *attributes) interners() []*slab.Interner {
	return append([]*slab.Interner{a.labels, a.labelSets, a.fieldSets, a.owners}, a.values[:]...)
}

func (a *attributes) sets() []*ordered.Set {
	return append([]*ordered.Set{a.setsByLabel, a.byLabels, a.byOwner, a.byCluster}, a.byValue[:]...)
}

func (a *attributes) close() {
	for _, interner := range a.interners() {
		interner.Close()
	}
	for _, set := range a.sets() {
		set.Close()
	}
}

func (a *attributes) reserved() int64 {
	var reserved int64
	for _, interner := range a.interners() {
		reserved += interner.Reserved()
	}
	for _, set := range a.sets() {
		reserved += set.Reserved()
	}
	return reserved
}

// acquire interns the properties of an object. An update rarely changes them: like, which may be nil, has those before the update.
func (a *attributes) acquire(p *prepared, like *terms) (t terms, err error) {
	t.cluster = p.cluster.id
	if like == nil {
		like = &terms{}
	}
	defer func() {
		if err != nil {
			a.release(t)
		}
	}()
	if a.sameLabels(like.labels, p.object.Labels) {
		t.labels = like.labels
		a.labelSets.Retain(t.labels)
	} else if t.labels, err = a.acquireLabels(p.object.Labels); err != nil {
		return t, err
	}
	if t.fields, err = a.fieldSets.AcquireLike(p.together, like.fields); err != nil {
		return t, err
	}
	if t.owner, err = a.owners.AcquireLike(p.object.Owner, like.owner); err != nil {
		return t, err
	}
	for i, field := range p.plan.indexed {
		if t.indexed[i], err = a.values[i].AcquireLike(p.values[field], like.indexed[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// sameLabels reports whether a set is that of an object's labels.
func (a *attributes) sameLabels(id uint32, labels []wire.Pair) bool {
	set := a.labelSets.Get(id)
	for _, label := range labels {
		if string(label.Key) == names.ClusterLabel {
			continue // the virtual label of that name takes precedence
		}
		if len(set) == 0 {
			return false
		}
		pair := a.labels.Get(binary.LittleEndian.Uint32(set))
		at := len(label.Key)
		if len(pair) != at+len(separator)+len(label.Value) || !bytes.Equal(pair[:at], label.Key) || pair[at] != separator[0] || !bytes.Equal(pair[at+1:], label.Value) {
			return false
		}
		set = set[4:]
	}
	return len(set) == 0
}

func (a *attributes) acquireLabels(labels []wire.Pair) (uint32, error) {
	a.scratch = a.scratch[:0]
	release := func() {
		for b := a.scratch; len(b) > 0; b = b[4:] {
			a.labels.Release(binary.LittleEndian.Uint32(b), nil)
		}
	}
	for _, label := range labels {
		if string(label.Key) == names.ClusterLabel {
			continue // the virtual label of that name takes precedence
		}
		a.labelScratch = append(append(append(a.labelScratch[:0], label.Key...), separator...), label.Value...)
		id, _, err := a.labels.Acquire(a.labelScratch)
		if err != nil {
			release()
			return 0, err
		}
		a.scratch = binary.LittleEndian.AppendUint32(a.scratch, id)
	}
	set, fresh, err := a.labelSets.Acquire(a.scratch)
	if err != nil || !fresh {
		// A set has one reference to each of its labels, no matter how many entries have the set.
		release()
		return set, err
	}
	for b := a.scratch; len(b) > 0; b = b[4:] {
		a.setsByLabel.Insert(binary.LittleEndian.Uint32(b), set)
	}
	return set, nil
}

// retain adds references to the properties of an entry.
func (a *attributes) retain(t terms) {
	a.labelSets.Retain(t.labels)
	a.fieldSets.Retain(t.fields)
	a.owners.Retain(t.owner)
	for i, id := range t.indexed {
		a.values[i].Retain(id)
	}
}

// release removes the references of acquire or retain.
func (a *attributes) release(t terms) {
	a.labelSets.Release(t.labels, func() {
		for b := a.labelSets.Get(t.labels); len(b) > 0; b = b[4:] {
			label := binary.LittleEndian.Uint32(b)
			a.setsByLabel.Delete(label, t.labels)
			a.labels.Release(label, nil)
		}
	})
	a.fieldSets.Release(t.fields, nil)
	a.owners.Release(t.owner, nil)
	for i, id := range t.indexed {
		a.values[i].Release(id, nil)
	}
}

// index adds a key under terms, except those that another of its entries has; unindex removes it.
func (a *attributes) index(k uint32, t terms, others func(func(*terms) bool) bool) {
	if !others(func(o *terms) bool { return o.labels == t.labels }) {
		a.byLabels.Insert(t.labels, k)
	}
	if t.owner != 0 && !others(func(o *terms) bool { return o.owner == t.owner }) {
		a.byOwner.Insert(t.owner, k)
	}
	for i, id := range t.indexed {
		if id != 0 && !others(func(o *terms) bool { return o.indexed[i] == id }) {
			a.byValue[i].Insert(id, k)
		}
	}
	if !others(func(o *terms) bool { return o.cluster == t.cluster }) {
		a.byCluster.Insert(uint32(t.cluster), k)
	}
}

func (a *attributes) unindex(k uint32, t terms, others func(func(*terms) bool) bool) {
	if !others(func(o *terms) bool { return o.labels == t.labels }) {
		a.byLabels.Delete(t.labels, k)
	}
	if t.owner != 0 && !others(func(o *terms) bool { return o.owner == t.owner }) {
		a.byOwner.Delete(t.owner, k)
	}
	for i, id := range t.indexed {
		if id != 0 && !others(func(o *terms) bool { return o.indexed[i] == id }) {
			a.byValue[i].Delete(id, k)
		}
	}
	if !others(func(o *terms) bool { return o.cluster == t.cluster }) {
		a.byCluster.Delete(uint32(t.cluster), k)
	}
}

// labelSet implements labels.Labels for an object's labels and the virtual one of its cluster.
type labelSet struct {
	pairs   []string // key, value, key, value
	cluster string
}

func (a *attributes) labelSet(t *terms, cluster string) labelSet {
	set := a.labelSets.Get(t.labels)
	l := labelSet{cluster: cluster, pairs: make([]string, 0, len(set)/2)}
	for ; len(set) > 0; set = set[4:] {
		key, value := cutLabel(a.labels.Get(binary.LittleEndian.Uint32(set)))
		l.pairs = append(l.pairs, key, value)
	}
	return l
}

// Lookup returns the value of a label and whether there is one.
func (l labelSet) Lookup(name string) (string, bool) {
	if name == names.ClusterLabel {
		return l.cluster, l.cluster != templatesName
	}
	for i := 0; i < len(l.pairs); i += 2 {
		if l.pairs[i] == name {
			return l.pairs[i+1], true
		}
	}
	return "", false
}

// Has reports whether there is a label.
func (l labelSet) Has(name string) bool {
	_, ok := l.Lookup(name)
	return ok
}

// Get returns the value of a label.
func (l labelSet) Get(name string) string {
	value, _ := l.Lookup(name)
	return value
}
