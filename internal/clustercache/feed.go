package clustercache

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache/delta"
	"github.com/cellplane/cellplane/internal/clustercache/dictionary"
	"github.com/cellplane/cellplane/internal/clustercache/wire"
)

// Feed populates a Store with the objects of one member. Neither a feed nor two feeds of one member may be used concurrently.
type Feed struct {
	store   *Store
	cluster *cluster
	prepared
	removed wire.Object
	// marked is the progress of MarkObjects.
	marked position
	// refused is set if there are too many members: the feed stays empty.
	refused bool
}

// prepared is an object ready to be stored. Its memory is used again.
type prepared struct {
	plan    *fieldPlan
	cluster *cluster
	object  wire.Object
	edit    wire.Edit
	edited  []byte
	// values are those of all fields, together those that are stored as one.
	values       [][]byte
	found        [][]byte
	together     []byte
	uid, version uint64
	hashed       bool

	group uint64
	// The object is stored as a delta to a template, or is one: then template is 0 and compressed is set.
	template       uint32
	serial         uint64
	open           openTemplate
	difference     []byte
	compressed     []byte
	generation     *dictionary.Generation
	templateBuffer []byte
}

// maxObject is the size of the largest object. API servers accept a few megabytes at most.
const maxObject = delta.MaxSize / 2

// templatesName is the member name of the federation's own objects.
const templatesName = ""

// Feed returns the feed of a member. Feeds of different members do not block each other. The feed without a name is for the federation's
// own objects, the templates: they are shown while no member has one of their name, and have no cluster annotation.
func (s *Store) Feed(cluster string) *Feed {
	member, refused := s.member(cluster)
	return &Feed{store: s, cluster: member, refused: refused, prepared: prepared{plan: &s.fields, edit: s.edit}}
}

// member returns a member, which may be new. It fails if there are too many.
func (s *Store) member(name string) (c *cluster, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c = s.clusters[name]
	if c == nil {
		if len(s.clusterIDs) == maxClusters {
			return &cluster{name: name}, true
		}
		c = &cluster{id: uint16(len(s.clusterIDs)), name: name}
		s.clusters[name] = c
		s.clusterIDs = append(s.clusterIDs, c)
	}
	c.fed = true
	return c, false
}

// Begin starts a list: End removes all objects that were not applied since. Calling it again starts over.
func (f *Feed) Begin() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.cluster.fed = true
	f.cluster.pass++
}

// Apply stores an object in protobuf, without its envelope (runtime.Unknown.Raw). The bytes are not retained. An object with the same
// UID and resourceVersion as before is no change.
func (f *Feed) Apply(raw []byte) error {
	if err := f.apply(raw); err != nil {
		return fmt.Errorf("storing a %s of cluster %s: %w", f.store.kind.GroupVersionKind.Kind, f.cluster.name, err)
	}
	return nil
}

func (f *Feed) apply(raw []byte) error {
	s := f.store
	if f.refused {
		return errors.New("too many clusters")
	}
	if len(raw) > maxObject {
		return fmt.Errorf("the object has %d bytes, more than any API server stores", len(raw))
	}
	if err := f.parse(raw); err != nil {
		return err
	}
	if s.kind.Namespaced == (len(f.object.Namespace) == 0) {
		return fmt.Errorf("%q has the wrong namespace %q", f.object.Name, f.object.Namespace)
	}
	k, unchanged := f.unchanged()
	if unchanged {
		return nil
	}
	if err := f.compress(); err != nil {
		return err
	}
	s.mu.Lock()
	err := s.take(f.cluster, k, &f.prepared)
	s.mu.Unlock()
	s.broadcast.signal()
	return err
}

// ApplyObject stores a decoded object.
func (f *Feed) ApplyObject(object runtime.Object) error {
	encoder, ok := object.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return fmt.Errorf("%T has no protobuf encoding", object)
	}
	raw, err := encoder.Marshal()
	if err != nil {
		return fmt.Errorf("encoding a %T: %w", object, err)
	}
	return f.Apply(raw)
}

// Delete removes the object of a DELETED event, encoded as for Apply. A newer object of the same name stays.
func (f *Feed) Delete(raw []byte) error {
	if err := f.removed.Parse(raw); err != nil {
		return fmt.Errorf("deleting a %s of cluster %s: %w", f.store.kind.GroupVersionKind.Kind, f.cluster.name, err)
	}
	f.delete(f.removed.Namespace, f.removed.Name, func(e *entry) bool { return e.uid == xxhash.Sum64(f.removed.UID) })
	return nil
}

// Len returns the number of objects of the member.
func (f *Feed) Len() int {
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	return f.cluster.objects
}

// DeleteObject removes an object of any UID. It is no error if there is none.
func (f *Feed) DeleteObject(namespace, name string) {
	f.delete([]byte(namespace), []byte(name), func(*entry) bool { return true })
}

func (f *Feed) delete(namespace, name []byte, meant func(*entry) bool) {
	if f.refused {
		return
	}
	s := f.store
	s.mu.Lock()
	if k := s.findKey(namespace, s.qualified(name, f.cluster.name)); k != 0 {
		if id := s.of(k, f.cluster.id); id != 0 && meant(s.entries.At(id)) {
			s.settle(k, id, 0)
		}
	}
	s.mu.Unlock()
	s.broadcast.signal()
}

// End ends a list: objects that were not applied since Begin are removed. The member is synced and no longer stale.
func (f *Feed) End() {
	pass := f.cluster.pass
	f.sweep(func(e *entry) bool { return e.seen != pass })
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.cluster.synced, f.cluster.stale = true, time.Time{}
	f.marked = position{}
}

// MarkStale records since when the member cannot be watched; End and Fresh undo it. MarkObjects updates the objects.
func (f *Feed) MarkStale(since time.Time) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.cluster.stale = since
	f.marked = position{}
}

// MarkObjects updates the stale marks of up to limit objects of the member. Each change is an event. It returns how many objects it has
// checked, and whether there are more, with which the next call continues. A member may have many objects, which become stale at once:
// the caller decides how fast watchers get the events.
func (f *Feed) MarkObjects(limit int) (looked int, more bool) {
	if f.refused {
		return 0, false
	}
	s := f.store
	s.mu.Lock()
	var since uint32
	if !f.cluster.stale.IsZero() {
		since = uint32(f.cluster.stale.Unix())
	}
	var wrong []uint32
	s.attributes.byCluster.Ascend(uint32(f.cluster.id), s.upTo(f.marked), func(k uint32) bool {
		if looked == limit {
			more = true
			return false
		}
		looked++
		f.marked = s.positionOf(k)
		if id := s.of(k, f.cluster.id); id != 0 && (s.entries.At(id).stale == 0) != (since == 0) {
			wrong = append(wrong, id)
		}
		return true
	})
	if !more {
		f.marked = position{}
	}
	for _, id := range wrong {
		s.mark(id, since)
	}
	s.mu.Unlock()
	s.broadcast.signal()
	return looked, more
}

// Fresh records that the member is watched again and no event was missed.
func (f *Feed) Fresh() { f.MarkStale(time.Time{}) }

// Drop removes the member and all its objects. The Feed may be used again afterwards, as if new.
func (f *Feed) Drop() {
	f.sweep(func(*entry) bool { return true })
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.cluster.fed, f.cluster.synced, f.cluster.stale = false, false, time.Time{}
}

// sweepStep is how many keys are checked before the lock is released.
const sweepStep = 256

// sweep removes the objects of the member that a function selects.
func (f *Feed) sweep(goes func(*entry) bool) {
	if f.refused {
		return
	}
	s := f.store
	var at position
	for more := true; more; {
		s.mu.Lock()
		var gone []uint32
		looked := 0
		more = false
		s.attributes.byCluster.Ascend(uint32(f.cluster.id), s.upTo(at), func(k uint32) bool {
			if looked == sweepStep {
				more = true
				return false
			}
			looked++
			at = s.positionOf(k)
			if id := s.of(k, f.cluster.id); id != 0 && goes(s.entries.At(id)) {
				gone = append(gone, id)
			}
			return true
		})
		for _, id := range gone {
			s.settle(s.entries.At(id).key, id, 0)
		}
		s.mu.Unlock()
		s.broadcast.signal()
	}
}

// parse reads and edits an object.
func (p *prepared) parse(raw []byte) error {
	if err := p.object.Parse(raw); err != nil {
		return err
	}
	p.uid = xxhash.Sum64(p.object.UID)
	p.version, p.hashed = numberOf(p.object.Version)
	return nil
}

// unchanged reports whether the Store has this very object, and then marks it as seen. It also returns the key of the name, or 0.
func (f *Feed) unchanged() (k uint32, same bool) {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if k = s.findKey(f.object.Namespace, s.qualified(f.object.Name, f.cluster.name)); k == 0 {
		return 0, false
	}
	id := s.of(k, f.cluster.id)
	if id == 0 {
		return k, false
	}
	e := s.entries.At(id)
	if e.uid != f.uid || e.version != f.version || e.hashed != f.hashed {
		return k, false
	}
	e.seen = f.cluster.pass
	return k, true
}

// compress prepares an object to be stored.
func (f *Feed) compress() error {
	p, s := &f.prepared, f.store
	p.cluster = f.cluster
	p.edit.Annotations = append(p.edit.Annotations[:0], wire.Annotation{Key: names.MemberVersionAnnotation, Value: string(p.object.Version)})
	if f.cluster.name != "" {
		p.edit.Annotations = append(p.edit.Annotations, wire.Annotation{Key: s.kind.ClusterAnnotation, Value: f.cluster.name})
	}
	var err error
	if p.edited, err = p.object.Append(p.edited[:0], &p.edit); err != nil {
		return err
	}
	if p.values, p.found, err = p.plan.values(p.values, p.found, p.edited); err != nil {
		return err
	}
	if p.together, err = p.plan.join(p.together[:0], p.values); err != nil {
		return err
	}
	p.group = p.groupOf()
	p.template, p.generation, p.compressed = 0, nil, p.compressed[:0]

	s.mu.RLock()
	id := s.templates.groups[p.group]
	var loaded loadedTemplate
	if id != 0 {
		loaded, p.templateBuffer = s.templates.load(id, p.templateBuffer[:0])
	}
	s.mu.RUnlock()
	if id != 0 {
		if err := p.open.open(&loaded); err != nil {
			return fmt.Errorf("opening a template: %w", err)
		}
		p.difference = p.open.encoder.Append(p.difference[:0], p.edited)
		if worthwhile(len(p.difference), len(p.edited)) {
			p.template, p.serial = id, loaded.serial
			return nil
		}
	}
	p.becomeTemplate(s.templates)
	return nil
}

// becomeTemplate turns the object into a template.
func (p *prepared) becomeTemplate(t *templates) {
	p.template = 0
	p.compressed, p.generation = t.codec.Compress(p.compressed[:0], p.edited)
	p.difference = delta.AppendWhole(p.difference[:0], len(p.edited))
}

// groupOf returns the group of similar objects.
func (p *prepared) groupOf() uint64 {
	var digest xxhash.Digest
	digest.Reset()
	// Writes to a hash never fail.
	write := func(b []byte) {
		_, _ = digest.Write(b)
		_, _ = digest.WriteString(separator)
	}
	write([]byte(p.cluster.name))
	switch {
	case len(p.object.Owner) > 0:
		write(p.object.Owner)
	case len(p.object.Labels) > 0:
		write(p.object.Namespace)
		for _, label := range p.object.Labels {
			write(label.Key)
			write(label.Value)
		}
	default:
		write(p.together)
	}
	return digest.Sum64()
}
