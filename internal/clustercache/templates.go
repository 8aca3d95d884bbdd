package clustercache

import (
	"bytes"
	"sync"

	"github.com/cellplane/cellplane/internal/clustercache/delta"
	"github.com/cellplane/cellplane/internal/clustercache/dictionary"
	"github.com/cellplane/cellplane/internal/clustercache/slab"
)

// templates have what the objects of a group have in common: the pods of one ReplicaSet, the events of one reason. The first object of a
// group is its template, compressed; the others are stored as deltas to it. When the deltas become too large, the current object becomes
// the group's next template.
//
// The Store's lock protects all but codec and hot, which have their own.
type templates struct {
	arena  *slab.Arena
	codec  *dictionary.Codec
	table  slab.Table[template]
	groups map[uint64]uint32
	serial uint64
	hot    hotTemplates
}

type template struct {
	group      uint64
	serial     uint64 // distinguishes it from earlier templates of the same number
	blob       slab.Ref
	refs       uint32
	generation uint8
}

// worthwhile reports whether to store an object as a delta of a size.
func worthwhile(difference, size int) bool { return difference <= 64+size/3 }

func newTemplates(samples int) (*templates, error) {
	codec, err := dictionary.NewCodec(samples)
	if err != nil {
		return nil, err
	}
	return &templates{codec: codec, groups: map[uint64]uint32{}}, nil
}

// add stores the template of a group, with one reference. Siblings are likely to follow.
func (t *templates) add(group uint64, content, compressed []byte, generation *dictionary.Generation) (uint32, error) {
	blob, err := t.arena.Put(compressed)
	if err != nil {
		return 0, err
	}
	id := t.table.New()
	t.serial++
	*t.table.At(id) = template{group: group, serial: t.serial, blob: blob, refs: 1, generation: generation.ID}
	t.groups[group] = id
	t.hot.put(t.serial, &hotTemplate{content: bytes.Clone(content)})
	return id, nil
}

func (t *templates) retain(id uint32) { t.table.At(id).refs++ }

func (t *templates) release(id uint32) {
	record := t.table.At(id)
	record.refs--
	if record.refs > 0 {
		return
	}
	if t.groups[record.group] == id {
		delete(t.groups, record.group)
	}
	t.codec.Release(t.codec.Generation(record.generation))
	t.arena.Free(record.blob)
	t.table.Free(id)
}

// loadedTemplate is a template as it was under the lock: hot, or compressed.
type loadedTemplate struct {
	serial     uint64
	hot        *hotTemplate
	compressed []byte
	generation *dictionary.Generation
}

// load returns a template for use after the lock is released. Its bytes are appended to buffer if need be.
func (t *templates) load(id uint32, buffer []byte) (loadedTemplate, []byte) {
	record := t.table.At(id)
	l := loadedTemplate{serial: record.serial}
	if l.hot = t.hot.get(record.serial); l.hot != nil {
		return l, buffer
	}
	start := len(buffer)
	buffer = append(buffer, t.arena.Get(record.blob)...)
	l.compressed, l.generation = buffer[start:], t.codec.Generation(record.generation)
	return l, buffer
}

// open returns the content of a loaded template.
func (t *templates) open(l *loadedTemplate) (*hotTemplate, error) {
	if l.hot == nil {
		content, err := l.generation.Decompress(nil, l.compressed)
		if err != nil {
			return nil, err
		}
		l.hot = &hotTemplate{content: content}
		t.hot.put(l.serial, l.hot)
	}
	return l.hot, nil
}

// hotTemplate is a decompressed template.
type hotTemplate struct{ content []byte }

// openTemplate is the template that a feed used last. Siblings often follow each other; if not, the memory is used for the next
// template.
type openTemplate struct {
	encoder delta.Template
	serial  uint64 // 0 means none
	content []byte
}

// open replaces it by a loaded template.
func (o *openTemplate) open(l *loadedTemplate) error {
	if o.serial == l.serial {
		return nil
	}
	if l.hot != nil {
		o.serial = l.serial
		o.encoder.Reset(l.hot.content)
		return nil
	}
	content, err := l.generation.Decompress(o.content[:0], l.compressed)
	if err != nil {
		o.serial = 0 // its memory may be overwritten
		return err
	}
	o.serial, o.content = l.serial, content
	o.encoder.Reset(content)
	return nil
}

const (
	hotShards   = 16
	hotPerShard = 128
	// maxHot is the size of the largest template in the cache.
	maxHot = 64 << 10
)

// hotTemplates is a cache of decompressed templates: siblings are often written and read in a row.
type hotTemplates struct {
	shards [hotShards]struct {
		mu      sync.Mutex
		serials map[uint64]*hotTemplate
		ring    [hotPerShard]uint64
		at      int
	}
}

func (h *hotTemplates) get(serial uint64) *hotTemplate {
	shard := &h.shards[serial%hotShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.serials[serial]
}

// put replaces the oldest template in the cache.
func (h *hotTemplates) put(serial uint64, hot *hotTemplate) {
	if len(hot.content) > maxHot {
		return
	}
	shard := &h.shards[serial%hotShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.serials == nil {
		shard.serials = make(map[uint64]*hotTemplate, hotPerShard)
	}
	if shard.serials[serial] != nil {
		return
	}
	delete(shard.serials, shard.ring[shard.at])
	shard.ring[shard.at] = serial
	shard.at = (shard.at + 1) % hotPerShard
	shard.serials[serial] = hot
}
