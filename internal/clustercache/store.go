package clustercache

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache/ordered"
	"github.com/cellplane/cellplane/internal/clustercache/slab"
	"github.com/cellplane/cellplane/internal/clustercache/wire"
)

// Store holds the objects of one kind of all members. Its methods are safe for concurrent use.
//
// Each namespace and name has one key, or in a separate kind one for each member. Each key has a chain of entries: the current ones of the
// members, and those shown at the versions in the history. Indexes map a term (a namespace, a node) to the keys of which some entry has that term. A reader checks which entry
// was visible at its version and whether that one has the term.
type Store struct {
	options  Options
	kind     Kind
	resource schema.GroupResource
	fields   fieldPlan
	edit     wire.Edit

	// mu protects all fields below. It is held briefly: objects are compressed before and decompressed after.
	mu         sync.RWMutex
	arena      slab.Arena
	keys       slab.Table[key]
	entries    slab.Table[entry]
	namespaces *slab.Interner
	// namespaceOrder are the namespaces by name.
	namespaceOrder []uint32
	attributes     attributes
	byNamespace    *ordered.Set
	templates      *templates
	clusters       map[string]*cluster
	clusterIDs     []*cluster
	history        history
	pins           pins
	shown          int
	shadowed       int
	encodedBytes   int64
	closed         bool

	broadcast broadcast
	// watchers counts the watches, and cut those that were closed for being too slow.
	watchers, cut atomic.Int64
}

// key is a namespace and name, and the cluster if the kind is separate.
type key struct {
	namespace uint32
	// name is what qualified returns.
	name slab.Ref
	head uint32
}

// Event numbers of entries that are not shown yet, and of those that still are.
const (
	unborn = ^uint64(0)
	never  = ^uint64(0)
)

// entry is an object of a member, in one of its states.
type entry struct {
	// born and died are the events between which the entry was shown.
	born, died uint64
	// uid is a hash of the object's UID, and version its resourceVersion, or a hash of that if it is no number.
	uid, version uint64
	key          uint32
	next         uint32
	blob         slab.Ref
	template     uint32
	terms        terms
	created      uint32
	size         uint32
	seen         uint16
	hashed       bool
	// stale is the stale mark of the object: since when its member cannot be watched, in seconds since 1970, or 0.
	stale uint32
}

// terms are the index terms of an entry.
type terms struct {
	labels  uint32
	fields  uint32
	owner   uint32
	indexed [maxIndexed]uint32
	cluster uint16
}

// cluster is a member.
type cluster struct {
	id       uint16
	name     string
	pass     uint16 // counts Begins: objects seen in the current pass stay
	objects  int
	shadowed int
	synced   bool
	stale    time.Time
	// fed is false before the first feed and after Drop. The number stays with the name.
	fed bool
}

const (
	maxClusters = 1<<16 - 1
	// maxIndexed is how many fields of a kind can be indexed.
	maxIndexed = 2
)

// New returns an empty Store.
func New(options Options) (*Store, error) {
	options.complete()
	options.Kind.ClusterAnnotation = cmp.Or(options.Kind.ClusterAnnotation, names.ClusterAnnotation)
	plan, err := planFields(options.Kind.Fields)
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", options.Kind.GroupVersionKind.Kind, err)
	}
	templates, err := newTemplates(options.TrainingSamples)
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: options, kind: options.Kind, fields: plan,
		resource:  schema.GroupResource{Group: options.Kind.GroupVersionKind.Group, Resource: options.Kind.Resource},
		templates: templates,
		clusters:  map[string]*cluster{},
		edit: wire.Edit{KeepManagedFields: options.KeepManagedFields, KeepLastApplied: options.KeepLastApplied,
			Drop: []string{options.Kind.ClusterAnnotation, names.ClusterAnnotation, names.MemberVersionAnnotation, names.StaleSinceAnnotation, names.ContestedAnnotation}},
	}
	s.templates.arena = &s.arena
	s.namespaces = slab.NewInterner(&s.arena)
	s.byNamespace = ordered.NewSet(s.compareKeys)
	s.attributes.init(&s.arena, s.compareKeys)
	s.history.init(options.History, options.PinnedHistory)
	s.broadcast.init()
	return s, nil
}

// Close releases the Store's memory. The Store must not be used afterwards.
func (s *Store) Close() {
	s.templates.codec.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.attributes.close()
	s.byNamespace.Close()
	s.namespaces.Close()
	s.templates.table.Close()
	s.entries.Close()
	s.keys.Close()
	s.arena.Close()
}

// Version returns the version of the last event.
func (s *Store) Version() uint64 {
	return s.options.Incarnation.version(s.history.last.Load())
}

// Expired returns a 410 error if a version is not of this Store, or too old to continue from.
func (s *Store) Expired(version uint64) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, err := s.eventOf(version)
	return err
}

// eventOf returns the event number of a version.
func (s *Store) eventOf(version uint64) (uint64, error) {
	n, ok := s.options.Incarnation.event(version)
	if !ok || n > s.history.last.Load() {
		return 0, foreign(version)
	}
	if !s.history.retains(n) {
		return 0, s.expired(n)
	}
	return n, nil
}

func (s *Store) expired(n uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is too old; list again", s.options.Incarnation.version(n)))
}

// Foreign returns a 410 error if a version is not of this Store. Unlike Expired it accepts old versions.
func (s *Store) Foreign(version uint64) error {
	if n, ok := s.options.Incarnation.event(version); !ok || n > s.history.last.Load() {
		return foreign(version)
	}
	return nil
}

func foreign(version uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is not from this replica; list again", version))
}

// Clusters returns the state of every member that has a feed, by name.
func (s *Store) Clusters() []ClusterState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	states := make([]ClusterState, 0, len(s.clusters))
	for _, c := range s.clusters {
		if c.fed {
			states = append(states, ClusterState{Name: c.name, Objects: c.objects, Shadowed: c.shadowed, Synced: c.synced, Stale: c.stale})
		}
	}
	slices.SortFunc(states, func(a, b ClusterState) int { return cmp.Compare(a.Name, b.Name) })
	return states
}

// Stats returns statistics of the Store.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	shadowed := s.shadowed
	if t := s.clusters[templatesName]; t != nil {
		shadowed -= t.shadowed
	}
	return Stats{
		Objects:         s.shown + s.shadowed,
		Shadowed:        shadowed,
		History:         s.history.len(),
		EncodedBytes:    s.encodedBytes,
		CompressedBytes: s.arena.Used(),
		ReservedBytes: s.arena.Reserved() + s.keys.Reserved() + s.entries.Reserved() + s.namespaces.Reserved() + s.byNamespace.Reserved() +
			s.attributes.reserved() + s.templates.table.Reserved(),
		Dictionaries: s.templates.codec.Generations(),
		Watchers:     int(s.watchers.Load()),
		CutWatchers:  int(s.cut.Load()),
	}
}

// compareKeys orders keys by namespace and name.
func (s *Store) compareKeys(a, b uint32) int {
	ka, kb := s.keys.At(a), s.keys.At(b)
	if ka.namespace != kb.namespace {
		return bytes.Compare(s.namespaces.Get(ka.namespace), s.namespaces.Get(kb.namespace))
	}
	return bytes.Compare(s.arena.Get(ka.name), s.arena.Get(kb.name))
}

// qualified returns the name of a key: that of the object, and in a separate kind also the cluster. No name has a zero byte, so that keys
// are ordered by name and then by cluster.
func (s *Store) qualified(name []byte, cluster string) []byte {
	if !s.kind.Separate {
		return name
	}
	return append(append(bytes.Clone(name), separator...), cluster...)
}

// nameOf returns the name of a key's objects.
func (s *Store) nameOf(k *key) []byte {
	name := s.arena.Get(k.name)
	if s.kind.Separate {
		name, _, _ = bytes.Cut(name, []byte(separator))
	}
	return name
}

// keysNamed visits the keys of a namespace and name: one, or in a separate kind one for each cluster.
func (s *Store) keysNamed(namespace, name []byte, visit func(k uint32)) {
	if !s.kind.Separate {
		if k := s.findKey(namespace, name); k != 0 {
			visit(k)
		}
		return
	}
	id, ok := s.namespaces.Lookup(namespace)
	if !ok {
		return
	}
	s.byNamespace.Ascend(id, func(k uint32) bool { return bytes.Compare(s.nameOf(s.keys.At(k)), name) < 0 }, func(k uint32) bool {
		if !bytes.Equal(s.nameOf(s.keys.At(k)), name) {
			return false
		}
		visit(k)
		return true
	})
}

// findKey returns the key of a namespace and qualified name, or 0.
func (s *Store) findKey(namespace, name []byte) uint32 {
	id, ok := s.namespaces.Lookup(namespace)
	if !ok {
		return 0
	}
	var found uint32
	s.byNamespace.Ascend(id, func(k uint32) bool { return bytes.Compare(s.arena.Get(s.keys.At(k).name), name) < 0 }, func(k uint32) bool {
		if bytes.Equal(s.arena.Get(s.keys.At(k).name), name) {
			found = k
		}
		return false
	})
	return found
}

// isKey reports whether a key exists and is that of a namespace and qualified name.
func (s *Store) isKey(k uint32, namespace, name []byte) bool {
	at := s.keys.At(k)
	return bytes.Equal(s.arena.Get(at.name), name) && bytes.Equal(s.namespaces.Get(at.namespace), namespace)
}

// ensureKey returns the key of a namespace and qualified name, which may be new and without entries.
func (s *Store) ensureKey(namespace, name []byte) (uint32, error) {
	if found := s.findKey(namespace, name); found != 0 {
		return found, nil
	}
	ref, err := s.arena.Put(name)
	if err != nil {
		return 0, err
	}
	id, fresh, err := s.namespaces.Acquire(namespace)
	if err != nil {
		s.arena.Free(ref)
		return 0, err
	}
	if fresh {
		s.namespaceOrder = slices.Insert(s.namespaceOrder, s.namespacePlace(namespace), id)
	}
	k := s.keys.New()
	*s.keys.At(k) = key{namespace: id, name: ref}
	s.byNamespace.Insert(id, k)
	return k, nil
}

// releaseKey removes a key without entries.
func (s *Store) releaseKey(id uint32) {
	k := s.keys.At(id)
	if k.head != 0 {
		return
	}
	s.byNamespace.Delete(k.namespace, id)
	s.namespaces.Release(k.namespace, func() {
		at := s.namespacePlace(s.namespaces.Get(k.namespace))
		s.namespaceOrder = slices.Delete(s.namespaceOrder, at, at+1)
	})
	s.arena.Free(k.name)
	s.keys.Free(id)
}

// namespacePlace returns the index at which a namespace is, or would be inserted.
func (s *Store) namespacePlace(namespace []byte) int {
	at, _ := slices.BinarySearchFunc(s.namespaceOrder, namespace, func(id uint32, name []byte) int {
		return bytes.Compare(s.namespaces.Get(id), name)
	})
	return at
}

// visible returns the entry of a key that was shown after an event, or nil.
func (s *Store) visible(k uint32, n uint64) *entry {
	for id := s.keys.At(k).head; id != 0; {
		e := s.entries.At(id)
		if e.born <= n && n < e.died && e.born != unborn {
			return e
		}
		id = e.next
	}
	return nil
}

// of returns the entry of a key that a member has now, or 0.
func (s *Store) of(k uint32, cluster uint16) uint32 {
	for id := s.keys.At(k).head; id != 0; {
		e := s.entries.At(id)
		if e.died == never && e.terms.cluster == cluster {
			return id
		}
		id = e.next
	}
	return 0
}
