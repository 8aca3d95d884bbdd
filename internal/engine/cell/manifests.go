package cell

import (
	"bytes"
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
)

// Manifests caches the manifests of Works that are likely to be needed: those just written and, at the start, those
// that have not been compared with the members yet. Others are read from the cell when needed.
type Manifests struct {
	mu    sync.Mutex
	size  int
	cache *lru.Cache
}

// manifestsSize bounds the memory of manifests, in bytes.
const manifestsSize = 64 << 20

type cachedManifests struct {
	uid        types.UID
	generation int64
	manifests  [][]byte
}

func (r *cachedManifests) size() int {
	size := 0
	for _, manifest := range r.manifests {
		size += len(manifest)
	}
	return size
}

func newManifests() *Manifests {
	m := &Manifests{}
	m.cache = lru.NewWithEvictionFunc(0, func(_ lru.Key, value any) { m.size -= value.(*cachedManifests).size() })
	return m
}

// Add caches the manifests of a generation of a Work.
func (m *Manifests) Add(work Key, uid types.UID, generation int64, manifests []workv1alpha1.Manifest) {
	r := &cachedManifests{uid: uid, generation: generation}
	for i := range manifests {
		r.manifests = append(r.manifests, manifests[i].Raw)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.Remove(work)
	m.cache.Add(work, r)
	m.size += r.size()
	for m.size > manifestsSize && m.cache.Len() > 1 {
		m.cache.RemoveOldest()
	}
}

// Get returns the manifests of a generation of a Work, if they are cached.
func (m *Manifests) Get(work *Work) ([][]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.cache.Get(work.Key)
	if !ok {
		return nil, false
	}
	r := value.(*cachedManifests)
	return r.manifests, r.uid == work.UID && r.generation == work.Generation
}

// Forget removes the manifests of a Work.
func (m *Manifests) Forget(work Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.Remove(work)
}

// Canonical returns JSON with sorted keys and without spaces, so that equal values have equal bytes. Anything but JSON
// is returned unchanged.
func Canonical(raw []byte) []byte {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return raw
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return raw
	}
	return canonical
}
