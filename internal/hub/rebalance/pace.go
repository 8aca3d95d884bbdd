package rebalance

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// paceSamples is how many transactions are looked at before the pace changes. What counts is how long the slowest quarter of them takes
	// at least: where requests begin to queue some wait long before half of them do.
	paceSamples = 16
	// paceTolerance is how many times as long as at best transactions may take before fewer objects move at once. Where requests
	// queue, twice as long means that about half of what is there is used.
	paceTolerance = 2
	// paceFloor is how many objects move at once however slow the stores are.
	paceFloor = 2
)

// pace says how many objects move at once: no more than the window, and fewer if the stores become slow. The first objects go one by
// one and tell how fast the stores are; then there are more and more until transactions take clearly longer than those did. So others
// who use the same stores and machines do not have to wait for the mover.
type pace struct {
	window int

	mu      sync.Mutex
	limit   int
	used    int
	freed   chan struct{}
	samples []time.Duration
	quiet   time.Duration // what a transaction takes at best; 0 while that is not known
}

func newPace(window int) *pace {
	return &pace{window: window, limit: 1, freed: make(chan struct{}, 1)}
}

// acquire waits until some objects may move. Only one goroutine may call it. More objects than ever may move at once go alone.
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
		case <-p.freed:
		}
	}
}

func (p *pace) release(objects int) {
	p.mu.Lock()
	p.used -= objects
	p.mu.Unlock()
	p.stir()
}

func (p *pace) stir() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// now is how many objects may move at once.
func (p *pace) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// underWay is how many objects move at the moment.
func (p *pace) underWay() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// took learns how long a transaction with a single object took.
func (p *pace) took(duration time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, duration)
	if len(p.samples) < paceSamples {
		return
	}
	slices.Sort(p.samples)
	slow := p.samples[len(p.samples)*3/4]
	p.samples = p.samples[:0]
	if p.quiet == 0 || slow < p.quiet {
		p.quiet = slow
	}
	if slow > paceTolerance*p.quiet {
		p.limit = max(p.limit*3/4, paceFloor)
	} else {
		p.limit += max(p.limit/4, 1)
	}
	p.limit = min(p.limit, p.window)
	p.stir()
}
