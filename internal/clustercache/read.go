package clustercache

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache/delta"
	"github.com/cellplane/cellplane/internal/clustercache/wire"
)

// Get returns an object. Without a cluster it returns the one that is shown, or of a separate kind the first; with a cluster also a
// shadowed one.
// The error is a 404 if there is none.
func (s *Store) Get(cluster, namespace, name string) (Object, error) {
	return s.getOne(name, func() *entry { return s.lookup(cluster, namespace, name) })
}

// Holders returns the members that have an object of a name, sorted. Of a kind that is not separate it is the one that is shown.
func (s *Store) Holders(namespace, name string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var holders []string
	s.keysNamed([]byte(namespace), []byte(name), func(k uint32) {
		if e := s.visible(k, s.history.last.Load()); e != nil {
			holders = append(holders, s.clusterIDs[e.terms.cluster].name)
		}
	})
	return holders
}

// GetAmong returns the object that would be shown if only some members existed.
func (s *Store) GetAmong(members func(cluster string) bool, namespace, name string) (Object, error) {
	return s.getOne(name, func() *entry { return s.bestAmong(members, namespace, name) })
}

// getOne returns the object that find returns.
func (s *Store) getOne(name string, find func() *entry) (Object, error) {
	var r reading
	s.mu.RLock()
	if e := find(); e != nil {
		r.load(s, e)
	}
	s.mu.RUnlock()
	if len(r.loads) == 0 {
		return Object{}, apierrors.NewNotFound(s.resource, name)
	}
	return r.object(s, 0)
}

func (s *Store) bestAmong(members func(cluster string) bool, namespace, name string) *entry {
	k := s.findKey([]byte(namespace), []byte(name))
	if k == 0 {
		return nil
	}
	var best *entry
	for id := s.keys.At(k).head; id != 0; id = s.entries.At(id).next {
		e := s.entries.At(id)
		if e.died == never && members(s.clusterIDs[e.terms.cluster].name) && (best == nil || s.precedes(e, best)) {
			best = e
		}
	}
	return best
}

// lookup returns the entry for Get, or nil.
func (s *Store) lookup(cluster, namespace, name string) *entry {
	if cluster == "" {
		var first *entry
		s.keysNamed([]byte(namespace), []byte(name), func(k uint32) {
			if first == nil {
				first = s.visible(k, s.history.last.Load())
			}
		})
		return first
	}
	c := s.clusters[cluster]
	if c == nil {
		return nil
	}
	k := s.findKey([]byte(namespace), s.qualified([]byte(name), cluster))
	if k == 0 {
		return nil
	}
	if id := s.of(k, c.id); id != 0 {
		return s.entries.At(id)
	}
	return nil
}

// MemberVersion returns the member and the member's resourceVersion of the object that was shown with a version. It is lost when a later
// change of the object leaves the history; a write based on such a version conflicts.
func (s *Store) MemberVersion(namespace, name string, version uint64) (cluster, memberVersion string, ok bool) {
	n, ok := s.options.Incarnation.event(version)
	if !ok {
		return "", "", false
	}
	var r reading
	s.mu.RLock()
	s.keysNamed([]byte(namespace), []byte(name), func(k uint32) {
		if e := s.visible(k, n); e != nil && e.born == n {
			r.load(s, e)
		}
	})
	s.mu.RUnlock()
	if len(r.loads) == 0 {
		return "", "", false
	}
	object, err := r.object(s, 0)
	return object.Cluster, object.MemberVersion, err == nil
}

// reading has entries that were copied under the lock, to be decompressed after. Its memory is used again.
type reading struct {
	loads  []load
	buffer []byte
	// templates are those of the loads. Neighbours often share one.
	templates []loadedTemplate
	raw       []byte
	marked    []byte
}

// load is a copied entry.
type load struct {
	cluster         string
	stale           time.Time
	namespace, name [2]int // ranges of the buffer
	blob            [2]int
	template        int
	event           uint64
	version         uint64
	hashed          bool
	size            uint32
}

func (r *reading) reset() {
	r.loads, r.buffer, r.templates = r.loads[:0], r.buffer[:0], r.templates[:0]
}

// load copies an entry. The caller holds the lock.
func (r *reading) load(s *Store, e *entry) {
	k, c := s.keys.At(e.key), s.clusterIDs[e.terms.cluster]
	l := load{cluster: c.name, event: e.born, version: e.version, hashed: e.hashed, size: e.size}
	if e.stale != 0 {
		l.stale = time.Unix(int64(e.stale), 0)
	}
	if e.born == unborn {
		// A shadowed object has no version of its own. That of the last event tells how recent the response is.
		l.event = s.history.last.Load()
	}
	l.namespace = r.copy(s.namespaces.Get(k.namespace))
	l.name = r.copy(s.nameOf(k))
	l.blob = r.copy(s.arena.Get(e.blob))
	if n := len(r.templates); n == 0 || r.templates[n-1].serial != s.templates.table.At(e.template).serial {
		var loaded loadedTemplate
		loaded, r.buffer = s.templates.load(e.template, r.buffer)
		// The buffer may move as it grows; the template in it is copied when it is opened.
		if loaded.hot == nil {
			loaded.compressed = bytes.Clone(loaded.compressed)
		}
		r.templates = append(r.templates, loaded)
	}
	l.template = len(r.templates) - 1
	r.loads = append(r.loads, l)
}

func (r *reading) copy(b []byte) [2]int {
	start := len(r.buffer)
	r.buffer = append(r.buffer, b...)
	return [2]int{start, len(r.buffer)}
}

func (r *reading) at(at [2]int) []byte { return r.buffer[at[0]:at[1]] }

// decode returns the ith loaded object, encoded, with the version of an event as its resourceVersion. It is valid until the next call.
func (r *reading) decode(s *Store, i int, event uint64) ([]byte, error) {
	l := &r.loads[i]
	hot, err := s.templates.open(&r.templates[l.template])
	if err != nil {
		return nil, r.damaged(i, err)
	}
	if r.raw, err = delta.Decode(r.raw[:0], hot.content, r.at(l.blob)); err != nil {
		return nil, r.damaged(i, err)
	}
	if err := wire.Stamp(r.raw, s.options.Incarnation.version(event)); err != nil {
		return nil, r.damaged(i, err)
	}
	if l.stale.IsZero() {
		return r.raw, nil
	}
	if r.marked, err = wire.Annotated(r.marked[:0], r.raw, staleAnnotation(l.stale)); err != nil {
		return nil, r.damaged(i, err)
	}
	return r.marked, nil
}

func (r *reading) damaged(i int, err error) error {
	return fmt.Errorf("reading %s/%s from the cache: %w", r.at(r.loads[i].namespace), r.at(r.loads[i].name), err)
}

// object returns the ith loaded object. Its Raw is valid until the next call.
func (r *reading) object(s *Store, i int) (Object, error) {
	l := &r.loads[i]
	raw, err := r.decode(s, i, l.event)
	if err != nil {
		return Object{}, err
	}
	return Object{
		Cluster: l.cluster, Namespace: string(r.at(l.namespace)), Name: string(r.at(l.name)),
		Version: s.options.Incarnation.version(l.event), MemberVersion: l.memberVersion(raw), Stale: l.stale, Raw: raw,
	}, nil
}

func (l *load) memberVersion(raw []byte) string {
	if l.hashed {
		return wire.AnnotationOf(raw, names.MemberVersionAnnotation)
	}
	return strconv.FormatUint(l.version, 10)
}

func staleAnnotation(since time.Time) wire.Annotation {
	return wire.Annotation{Key: names.StaleSinceAnnotation, Value: since.UTC().Format(time.RFC3339)}
}

// position is a place in the order of keys: right after a namespace and qualified name. The zero value is before all.
type position struct {
	namespace, name string
}

func (p position) isZero() bool { return p == position{} }

func (s *Store) positionOf(k uint32) position {
	at := s.keys.At(k)
	return position{string(s.namespaces.Get(at.namespace)), string(s.arena.Get(at.name))}
}

// upTo returns a function that reports whether a key is at or before a position.
func (s *Store) upTo(at position) func(k uint32) bool {
	if at.isZero() {
		return nil
	}
	return func(k uint32) bool { return s.compareTo(k, at) <= 0 }
}

func (s *Store) compareTo(k uint32, at position) int {
	found := s.keys.At(k)
	if order := bytes.Compare(s.namespaces.Get(found.namespace), []byte(at.namespace)); order != 0 {
		return order
	}
	return bytes.Compare(s.arena.Get(found.name), []byte(at.name))
}
