package status

import (
	"math"
	"sync"
	"time"
)

// What is still moving is written when it has been quiet for a while, or has moved for long; what has come to rest, or
// has failed, is written at once. A rollout so costs a few writes, not one for every pod. Few people look at Works,
// so that they may lag behind more.
//
// When much moves at once, each takes longer to come to rest. Then only what takes much longer than the others did of
// late is worth a word on the way: both times grow with what has been usual, as far as the crowd is large, up to a
// factor. A few rollouts that take their time are told of as ever. Where nothing comes to rest at all, as after a
// mistake that all share, only the size of the crowd counts, and all are told of within minutes.
var (
	bindingRhythm = rhythm{quiet: 5 * time.Second, longest: 15 * time.Second, stretch: 40, throng: 50}
	workRhythm    = rhythm{quiet: 45 * time.Second, longest: 90 * time.Second, stretch: 8, throng: 100}
)

// crowd is how many keys move for every time longer than at best that is waited at most.
const crowd = 10

const (
	// outlier is how many times longer than usual something takes that is worth a word on the way.
	outlier = 3
	// memory is after how long a movement that has ended counts half.
	memory = 15 * time.Second
	// inertia is how many movements count at most, and doubt for how many it counts that the usual may not be so.
	inertia = 8
	doubt   = 0.5
)

// gather is how long is waited in any case: members often answer together.
const gather = 10 * time.Millisecond

type rhythm struct {
	quiet, longest time.Duration
	stretch        int // how much longer at most
	throng         int // how many move for every time longer that is waited in any case
}

// pace remembers since when keys have had something to write.
type pace[K comparable] struct {
	rhythm
	mu    sync.Mutex
	moves map[K]movement
	ended float64       // how many movements have ended of late; old ones count less
	taken time.Duration // how long they have taken together
	rest  time.Time     // when the last one ended
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

// pause returns when to look again at a key that is still moving; 0 means that it is written. It is never long, as what
// is usual may change.
func (p *pace[K]) pause(key K, now time.Time) time.Duration { return min(p.wait(key, now), p.longest) }

// wait returns how long a key that is still moving is kept from being written, as things are now.
func (p *pace[K]) wait(key K, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, moving := p.moves[key]
	if !moving {
		return 0
	}
	factor := p.factor(now)
	return max(0, min(m.last.Add(factor*p.quiet).Sub(now), m.first.Add(factor*p.longest).Sub(now)))
}

// factor returns how much longer than at best is waited now.
func (p *pace[K]) factor(now time.Time) time.Duration {
	weight := p.weight(now)
	usual := time.Duration(weight * float64(p.taken) / (weight*p.ended + doubt))
	wanted := max(len(p.moves)/p.throng, min(len(p.moves)/crowd, int(outlier*usual/p.quiet)))
	return time.Duration(max(1, min(wanted, p.stretch)))
}

// weight returns how much counts now of what counted when the last movement ended.
func (p *pace[K]) weight(now time.Time) float64 {
	return math.Exp2(-max(0, now.Sub(p.rest).Seconds()/memory.Seconds()))
}

// settled starts over with a key that has come to rest.
func (p *pace[K]) settled(key K, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, moving := p.moves[key]
	if !moving {
		return
	}
	delete(p.moves, key)
	weight := min(p.weight(now), (inertia-1)/max(p.ended, inertia-1))
	p.ended, p.taken, p.rest = weight*p.ended+1, time.Duration(weight*float64(p.taken))+now.Sub(m.first), now
}

// written starts over with a key.
func (p *pace[K]) written(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.moves, key)
}
