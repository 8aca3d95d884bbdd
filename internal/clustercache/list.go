package clustercache

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// List is an open list: the objects that match a Filter at one version, sorted by namespace and name.
type List struct {
	store *Store
	event uint64
	// keys are those of the objects.
	keys      []uint32
	token     string
	remaining *int64
	closed    bool
}

const (
	// readStep is how many objects are copied before the lock is released, and readBytes the size after which no more are.
	readStep  = 64
	readBytes = 128 << 10
)

// List opens a list. The caller must Close it.
func (s *Store) List(options ListOptions) (*List, error) {
	filter, err := s.compile(options.Filter)
	if err != nil {
		return nil, err
	}
	from, err := decodeToken(options.Continue)
	if err != nil {
		return nil, err
	}
	version := options.Version
	if options.Continue != "" {
		if version != 0 {
			return nil, apierrors.NewBadRequest("a continue token has its own resource version; omit resourceVersion")
		}
		version = from.Version
	}
	l := &List{store: s}
	if err := l.pin(version, filter, &from); err != nil {
		return nil, err
	}
	if err := l.gather(filter, options.Limit, from); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// pin keeps the version of the list in the history, and counts the objects on the first page.
func (l *List) pin(version uint64, filter *compiled, from *token) (err error) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	l.event = s.history.last.Load()
	if version != 0 {
		if l.event, err = s.eventOf(version); err != nil {
			return err
		}
	} else if *from == (token{}) && filter.everything() && filter.namespace == "" {
		from.Total = s.shown
	}
	s.pins.add(l.event)
	return nil
}

// gather collects the keys of the list's objects.
func (l *List) gather(filter *compiled, limit int, from token) error {
	g := gathering{store: l.store, matcher: matcher{compiled: filter}, event: l.event, from: position{from.Namespace, from.Name}}
	if limit > 0 {
		g.limit = limit + 1 // one more shows whether this is the last page
	}
	if err := g.run(); err != nil {
		return err
	}
	l.keys = g.keys
	if limit <= 0 || len(g.keys) <= limit {
		return nil
	}
	l.keys = g.keys[:limit]
	l.store.mu.RLock()
	last := l.store.positionOf(l.keys[limit-1])
	l.store.mu.RUnlock()
	next := token{Version: l.Version(), Namespace: last.namespace, Name: last.name, Total: from.Total, Served: from.Served + limit}
	l.token = next.encode()
	if from.Total > 0 {
		remaining := int64(max(next.Total-next.Served, 1))
		l.remaining = &remaining
	}
	return nil
}

// Version returns the version of the list, the same on every page.
func (l *List) Version() uint64 { return l.store.options.Incarnation.version(l.event) }

// Len returns how many objects the list has.
func (l *List) Len() int { return len(l.keys) }

// Largest returns the size of the largest object, without the annotation of stale ones.
func (l *List) Largest() (int, error) {
	s, largest := l.store, uint32(0)
	for keys := l.keys; len(keys) > 0; {
		step := keys[:min(gatherStep, len(keys))]
		keys = keys[len(step):]
		s.mu.RLock()
		if !s.history.retains(l.event) {
			s.mu.RUnlock()
			return 0, s.expired(l.event)
		}
		for _, k := range step {
			largest = max(largest, s.visible(k, l.event).size)
		}
		s.mu.RUnlock()
	}
	return int(largest), nil
}

// Continue returns the token of the next page, "" on the last one, and how many objects remain, which is known only without a namespace
// and selectors.
func (l *List) Continue() (token string, remaining *int64) { return l.token, l.remaining }

// Objects yields the objects. An Object is valid until the next one; Clone copies it. An error ends the iteration: a 410 if the version
// has left the history.
func (l *List) Objects() iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		r := &reading{}
		for keys := l.keys; len(keys) > 0; {
			n, err := l.load(r, keys)
			if err != nil {
				yield(Object{}, err)
				return
			}
			keys = keys[n:]
			for i := range r.loads {
				object, err := r.object(l.store, i)
				if !yield(object, err) || err != nil {
					return
				}
			}
		}
	}
}

// load copies the entries of the first keys, and returns how many: one at least, and no more than take little memory.
func (l *List) load(r *reading, keys []uint32) (int, error) {
	s := l.store
	r.reset()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.history.retains(l.event) {
		return 0, s.expired(l.event)
	}
	for _, k := range keys[:min(readStep, len(keys))] {
		r.load(s, s.visible(k, l.event))
		if len(r.buffer) >= readBytes {
			break
		}
	}
	return len(r.loads), nil
}

// Close closes the list.
func (l *List) Close() {
	if l.closed {
		return
	}
	l.closed = true
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.pins.remove(l.event)
}

// token has the start of the next page and its version; 0 means the current one.
type token struct {
	Version   uint64 `json:"v"`
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"n"`
	// Total is the number of objects in the list, if known, and Served how many were on the pages so far.
	Total  int `json:"t,omitempty"`
	Served int `json:"s,omitempty"`
}

func (t token) encode() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("strings and numbers cannot be encoded: %v", err))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeToken(encoded string) (t token, err error) {
	if encoded == "" {
		return t, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err != nil || t.Name == "" && t.Namespace == "" || t.Total < 0 || t.Served < 0 {
		return token{}, apierrors.NewBadRequest("invalid continue token; list again")
	}
	return t, nil
}
