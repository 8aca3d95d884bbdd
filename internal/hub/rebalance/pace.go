package rebalance

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// paceSamples is the number of transactions after which the pace is adjusted. Their 75th percentile counts: where
	// requests begin to queue, some wait long before half of them do.
	paceSamples = 16
	// paceTolerance is how much slower than at best transactions may become before fewer objects move at once. Where
	// requests queue, twice as slow means that about half of the capacity is used.
	paceTolerance = 2
	// paceFloor is how many objects move at once however slow the stores are.
	paceFloor = 2
)

// pace limits how many objects move at once: up to the window, and fewer if the stores become slow. The first objects
// move one by one and show how fast the stores are. Then the limit grows until transactions take clearly longer. So
// other users of the same stores and machines do not have to wait for the mover.
type pace struct {
	window int

	mu      sync.Mutex
	limit   int
	used    int
	changed chan struct{}
	samples []time.Duration
	best    time.Duration // of a transaction; 0 while it is not known
}

func newPace(window int) *pace {
	return &pace{window: window, limit: 1, changed: make(chan struct{}, 1)}
}

// acquire waits until a number of objects may move. Only one goroutine may call it. More objects than the limit move
// alone.
func (p *pace) acquire(ctx context.Context, objects int) error {
	for {
		p.mu.Lock()
		free := p.used == 0 || p.used+objects <= p.limit
		if free {
			p.used += objects
		}
		p.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.changed:
		}
	}
}

func (p *pace) release(objects int) {
	p.mu.Lock()
	p.used -= objects
	p.mu.Unlock()
	p.notify()
}

func (p *pace) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// now returns how many objects may move at once.
func (p *pace) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// inUse returns how many objects are moving.
func (p *pace) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// observe takes the duration of a transaction with a single object.
func (p *pace) observe(duration time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, duration)
	if len(p.samples) < paceSamples {
		return
	}
	slices.Sort(p.samples)
	slow := p.samples[len(p.samples)*3/4]
	p.samples = p.samples[:0]
	if p.best == 0 || slow < p.best {
		p.best = slow
	}
	if slow > paceTolerance*p.best {
		p.limit = max(p.limit*3/4, paceFloor)
	} else {
		p.limit += max(p.limit/4, 1)
	}
	p.limit = min(p.limit, p.window)
	p.notify()
}
