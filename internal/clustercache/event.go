package clustercache

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
)

// Event is an event of a watch. All watchers that see the same event share it: it must not be changed.
type Event struct {
	// Type is ADDED, MODIFIED, DELETED or BOOKMARK, relative to the watcher's selection.
	Type watch.EventType
	// Version is the position after the event. It is the resourceVersion of the Object, too.
	Version uint64
	// InitialEventsEnd marks the bookmark after the initial events.
	InitialEventsEnd bool
	// Contested marks an event for watchers that ask for contested names. Its type is always DELETED, and its Object any of the name: the
	// watcher has to look up which object is shown now.
	Contested bool
	// Marked is set if nothing but the stale mark of the object has changed.
	Marked bool
	// Object is the object after the event, or for DELETED as it was before. A bookmark has none.
	Object Object

	encoded sync.Map // format → *encoding
	formats atomic.Int32
}

// maxFormats is how many formats of an event are kept. There are more than clients usually ask for, and a client can ask for all.
const maxFormats = 4

type encoding struct {
	once  sync.Once
	bytes []byte
	err   error
}

// Encoded returns the output of encode, which is called once per event and format for the first formats. Initial events and bookmarks belong
// to one watcher and are encoded for each.
func (e *Event) Encoded(format string, encode func(io.Writer) error) ([]byte, error) {
	found, ok := e.encoded.Load(format)
	if !ok {
		if e.formats.Add(1) > maxFormats {
			e.formats.Add(-1)
			return new(encoding).run(encode)
		}
		var raced bool
		if found, raced = e.encoded.LoadOrStore(format, new(encoding)); raced {
			e.formats.Add(-1)
		}
	}
	return found.(*encoding).run(encode)
}

func (one *encoding) run(encode func(io.Writer) error) ([]byte, error) {
	one.once.Do(func() {
		var buffer bytes.Buffer
		one.err = encode(&buffer)
		one.bytes = buffer.Bytes()
	})
	return one.bytes, one.err
}

// change is an event of the Store, independent of watchers.
type change struct {
	n             uint64
	before, after *state
	// alike is set if only a filter on distinct fields can distinguish before from after.
	alike bool
	// contested is that of its record.
	contested bool
	// marked is set if the object itself has not changed.
	marked bool

	mu     sync.Mutex
	events [contestedSlot + 1]*Event // added, modified, deleted, and contested
}

const contestedSlot = 3

// state is an object before or after a change, with the properties that filters need.
type state struct {
	namespace, name, owner string
	labels                 labelSet
	indexed                [maxIndexed]string
	together               []byte

	reading reading
	once    sync.Once
	object  Object
	err     error
}

// newState copies an entry. The caller holds the lock.
func newState(s *Store, e *entry) *state {
	k := s.keys.At(e.key)
	st := &state{
		namespace: string(s.namespaces.Get(k.namespace)), name: string(s.nameOf(k)), owner: string(s.attributes.owners.Get(e.terms.owner)),
		labels:   s.attributes.labelSet(&e.terms, s.clusterIDs[e.terms.cluster].name),
		together: bytes.Clone(s.attributes.fieldSets.Get(e.terms.fields)),
	}
	for i, id := range e.terms.indexed {
		st.indexed[i] = string(s.attributes.values[i].Get(id))
	}
	st.reading.load(s, e)
	return st
}

// decoded returns the object with the version of a change.
func (st *state) decoded(s *Store, n uint64) (Object, error) {
	st.once.Do(func() {
		st.reading.loads[0].event = n
		st.object, st.err = st.reading.object(s, 0)
	})
	return st.object, st.err
}

// selected reports whether a filter selects the object.
func (st *state) selected(s *Store, c *compiled, n uint64) (bool, error) {
	if c.nothing || c.namespace != "" && c.namespace != st.namespace || c.name != "" && c.name != st.name || c.owner != "" && c.owner != st.owner {
		return false, nil
	}
	for _, r := range c.indexed {
		if (st.indexed[r.i] == r.value) != r.equal {
			return false, nil
		}
	}
	for _, r := range c.together {
		if (string(joined(st.together, r.i)) == r.value) != r.equal {
			return false, nil
		}
	}
	if !c.keySelected(st.namespace, st.name) || c.labels != nil && !c.labels.Matches(st.labels) {
		return false, nil
	}
	if len(c.distinct) == 0 {
		return true, nil
	}
	object, err := st.decoded(s, n)
	if err != nil {
		return false, err
	}
	return c.distinctMatch(&s.fields, object.Raw)
}

// event returns the event of a type for a change.
func (c *change) event(s *Store, of watch.EventType) (*Event, error) {
	slot, from := 0, c.after
	switch of {
	case watch.Modified:
		slot = 1
	case watch.Deleted:
		slot, from = 2, c.before
	}
	return c.make(s, slot, from, of)
}

// contestedEvent returns the event of a change for watchers of contested names: a deletion, unless the watcher finds the name elsewhere.
func (c *change) contestedEvent(s *Store) (*Event, error) {
	from := c.after
	if from == nil {
		from = c.before
	}
	return c.make(s, contestedSlot, from, watch.Deleted)
}

// make returns the event of a state, created once.
func (c *change) make(s *Store, slot int, from *state, of watch.EventType) (*Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events[slot] == nil {
		object, err := from.decoded(s, c.n)
		if err != nil {
			return nil, err
		}
		c.events[slot] = &Event{Type: of, Contested: slot == contestedSlot, Marked: c.marked, Version: s.options.Incarnation.version(c.n), Object: object}
	}
	return c.events[slot], nil
}

// named reports whether a filter selects the object by its namespace and name.
func (c *change) named(f *compiled) bool {
	st := c.after
	if st == nil {
		st = c.before
	}
	return !f.nothing && (f.namespace == "" || f.namespace == st.namespace) && (f.name == "" || f.name == st.name) && f.keySelected(st.namespace, st.name)
}

const (
	// recentChanges is how many changes stay decompressed for all watchers, and recentBytes bounds their size.
	recentChanges = 1 << 10
	recentBytes   = 64 << 20
)

// changes caches recent changes for all watchers.
type changes struct {
	mu    sync.Mutex
	slots [recentChanges]atomic.Pointer[change]
	bytes int    // of the changes in the slots
	first uint64 // all changes before it have left the slots
}

// keep puts a change into its slot, in place of an older one, and drops the oldest changes if they take too much memory.
func (c *changes) keep(added *change) {
	c.drop(added.n % recentChanges)
	c.slots[added.n%recentChanges].Store(added)
	c.bytes += added.size()
	if added.n >= recentChanges {
		c.first = max(c.first, added.n-recentChanges+1)
	}
	for ; c.bytes > recentBytes && c.first < added.n; c.first++ {
		if old := c.slots[c.first%recentChanges].Load(); old != nil && old.n == c.first {
			c.drop(c.first % recentChanges)
		}
	}
}

func (c *changes) drop(slot uint64) {
	if old := c.slots[slot].Swap(nil); old != nil {
		c.bytes -= old.size()
	}
}

// size is the memory that a change takes at most: both states compressed, decompressed, and encoded in some formats.
func (c *change) size() int {
	size := 0
	for _, st := range []*state{c.before, c.after} {
		if st != nil {
			size += len(st.reading.buffer) + (1+maxFormats)*int(st.reading.loads[0].size)
		}
	}
	return size
}

// change returns the nth change. The error is a 410 if it has left the history.
func (s *Store) change(n uint64) (*change, error) {
	slot := &s.broadcast.changes.slots[n%recentChanges]
	if c := slot.Load(); c != nil && c.n == n {
		return c, nil
	}
	// One watcher loads a change; the others wait for it.
	s.broadcast.changes.mu.Lock()
	defer s.broadcast.changes.mu.Unlock()
	latest := slot.Load()
	if latest != nil && latest.n == n {
		return latest, nil
	}
	c, err := s.loadChange(n)
	if err == nil && (latest == nil || latest.n < n) && n >= s.broadcast.changes.first {
		s.broadcast.changes.keep(c)
	}
	return c, err
}

func (s *Store) loadChange(n uint64) (*change, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n < s.history.first {
		return nil, s.expired(n - 1)
	}
	r := s.history.at(n)
	c := &change{n: n, contested: r.contested, alike: r.before != 0 && r.after != 0 && s.entries.At(r.before).terms == s.entries.At(r.after).terms}
	if r.before != 0 && r.after != 0 {
		before, after := s.entries.At(r.before), s.entries.At(r.after)
		c.marked = before.uid == after.uid && before.version == after.version && before.hashed == after.hashed
	}
	if r.before != 0 {
		c.before = newState(s, s.entries.At(r.before))
	}
	if r.after != 0 {
		c.after = newState(s, s.entries.At(r.after))
	}
	return c, nil
}
