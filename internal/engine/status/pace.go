package status

import (
	"sync"
	"time"
)

// What is still moving is written when it has been quiet for a while, or has moved for long; what has come to rest, or
// has failed, is written at once. A rollout so costs a few writes, not one for every pod. Few people look at Works,
// so that they may lag behind more.
//
// When much moves at once, each takes longer to come to rest and is looked at less: both times grow, up to a factor.
var (
	bindingRhythm = rhythm{quiet: 5 * time.Second, longest: 15 * time.Second, stretch: 6}
	workRhythm    = rhythm{quiet: 45 * time.Second, longest: 90 * time.Second, stretch: 2}
)

// crowd is how many keys may move before times begin to grow.
const crowd = 50

// gather is how long is waited in any case: members often answer together.
const gather = 10 * time.Millisecond

type rhythm struct {
	quiet, longest time.Duration
	stretch        int // how much longer at most
}

// pace remembers since when keys have had something to write.
type pace[K comparable] struct {
	rhythm
	mu    sync.Mutex
	moves map[K]movement
}

type movement struct{ first, last time.Time }

func newPace[K comparable](r rhythm) *pace[K] { return &pace[K]{rhythm: r, moves: map[K]movement{}} }

// moved takes note that something about a key has changed.
func (p *pace[K]) moved(key K, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.moves[key]
	if m.first.IsZero() {
		m.first = now
	}
	m.last = now
	p.moves[key] = m
}

// wait returns how long to wait before a key that is still moving is written.
func (p *pace[K]) wait(key K, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, moving := p.moves[key]
	if !moving {
		return 0
	}
	factor := time.Duration(max(1, min(len(p.moves)/crowd, p.stretch)))
	return max(0, min(m.last.Add(factor*p.quiet).Sub(now), m.first.Add(factor*p.longest).Sub(now)))
}

// written starts over with a key.
func (p *pace[K]) written(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.moves, key)
}
