package durability

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cellplane/cellplane/internal/fleet"
)

// unfencedFor is how long a cell that was seen not to refuse writes of durable objects is not asked again.
const unfencedFor = time.Second

// fences remembers which cells refuse writes of durable objects, unless the gateway knows that they are durable.
type fences struct {
	mu    sync.Mutex
	cells map[*fleet.Upstream]*probed
}

type probed struct {
	fenced atomic.Bool
	mu     sync.Mutex // held while the cell is asked
	last   time.Time  // when it was last seen not to refuse
}

// Fenced reports whether a cell is known to refuse such writes. probe asks it, unless another request does. A cell that has refused one goes on
// doing so.
func (b *Backups) Fenced(cell *fleet.Upstream, probe func() bool) bool {
	return b.fences.fenced(cell, time.Now, probe)
}

func (f *fences) fenced(cell *fleet.Upstream, now func() time.Time, probe func() bool) bool {
	f.mu.Lock()
	p := f.cells[cell]
	if p == nil {
		if f.cells == nil {
			f.cells = map[*fleet.Upstream]*probed{}
		}
		p = &probed{}
		f.cells[cell] = p
	}
	f.mu.Unlock()
	if p.fenced.Load() {
		return true
	}
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	if !p.last.IsZero() && now().Sub(p.last) < unfencedFor {
		return false
	}
	refuses := probe()
	p.last = now()
	p.fenced.Store(refuses)
	return refuses
}

// keep forgets all cells except some.
func (f *fences) keep(cells map[string]*fleet.Upstream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	present := map[*fleet.Upstream]bool{}
	for _, cell := range cells {
		present[cell] = true
	}
	for cell := range f.cells {
		if !present[cell] {
			delete(f.cells, cell)
		}
	}
}
