package limits

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// shares is how many owners it takes to use the whole budget.
	shares = 4
	// DefaultWait is how long a request waits for bytes.
	DefaultWait = 10 * time.Second
)

// ErrExhausted is returned to a request that has waited too long for bytes.
var ErrExhausted = errors.New("the memory for requests and answers is in use")

// Budget is a number of bytes that requests may hold in memory together. An owner may hold a quarter of it. Requests that need more wait.
//
// The oldest request of each owner that holds bytes never waits. So every owner makes progress, whatever others hold, and requests that
// wait for each other cannot block. What is held exceeds the budget by at most one request per owner.
type Budget struct {
	total, share int64
	wait         time.Duration

	mu      sync.Mutex
	held    int64
	most    int64 // the highest value of held
	owners  map[string]*holding
	waiting []*waiter // in the order of arrival
	refused int64
}

// holding is what an owner holds.
type holding struct {
	bytes  int64
	grants []*Grant // with bytes, oldest first
}

// waiter is a request for more bytes.
type waiter struct {
	grant *Grant
	bytes int64
	ready chan struct{} // closed when they are granted
}

// NewBudget returns a budget of a size; 0 means no bound.
func NewBudget(size int64, wait time.Duration) *Budget {
	return &Budget{total: size, share: size / shares, wait: wait, owners: map[string]*holding{}}
}

// Usage is the state of a Budget.
type Usage struct {
	// Held is the number of bytes held now, and Most the highest so far.
	Held, Most int64
	// Waiting is the number of requests that wait, and Refused how many have waited in vain.
	Waiting int
	Refused int64
}

// Usage returns the state of the budget.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Usage{Held: b.held, Most: b.most, Waiting: len(b.waiting), Refused: b.refused}
}

// Size returns the size of the budget.
func (b *Budget) Size() int64 { return b.total }

// Open returns a grant without bytes. It must be closed.
func (b *Budget) Open(owner Owner) *Grant { return &Grant{budget: b, owner: owner} }

// Grant is what one request holds. All methods may be called on a nil Grant, which has no bound.
type Grant struct {
	budget *Budget
	owner  Owner
	bytes  int64 // guarded by the budget
	closed bool
}

// Another returns a grant of the same owner without bytes, for a part of a request that holds them for a shorter time. It must be closed.
func (g *Grant) Another() *Grant {
	if g == nil {
		return nil
	}
	return g.budget.Open(g.owner)
}

// Grow adds bytes, and waits until they are available. The error is ErrExhausted or that of the context.
func (g *Grant) Grow(ctx context.Context, bytes int64) error {
	if g == nil || bytes <= 0 {
		return nil
	}
	b := g.budget
	b.mu.Lock()
	if b.fits(g, bytes) {
		b.grant(g, bytes)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{grant: g, bytes: bytes, ready: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = ErrExhausted
	}
	return b.withdraw(w, err)
}

// withdraw ends a wait. If the bytes were granted meanwhile, the request has them.
func (b *Budget) withdraw(w *waiter, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i < 0 {
		return nil
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	if errors.Is(err, ErrExhausted) {
		b.refused++
	}
	return err
}

// fits reports whether a request may have more bytes now.
func (b *Budget) fits(g *Grant, bytes int64) bool {
	h := b.owners[g.owner.Name]
	switch {
	case b.total == 0 || g.owner.Exempt || g.closed || h == nil || h.grants[0] == g:
		return true
	default:
		return h.bytes+bytes <= b.share && b.held+bytes <= b.total
	}
}

func (b *Budget) grant(g *Grant, bytes int64) {
	if g.closed {
		return // nobody would release them
	}
	h := b.owners[g.owner.Name]
	if h == nil {
		h = &holding{}
		b.owners[g.owner.Name] = h
	}
	if g.bytes == 0 {
		h.grants = append(h.grants, g)
	}
	g.bytes += bytes
	h.bytes += bytes
	b.held += bytes
	b.most = max(b.most, b.held)
}

// Shrink returns bytes.
func (g *Grant) Shrink(bytes int64) {
	if g == nil || bytes <= 0 {
		return
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	g.budget.release(g, min(bytes, g.bytes))
}

// Close returns everything. Later calls of Grow have no effect.
func (g *Grant) Close() {
	if g == nil {
		return
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	g.closed = true
	g.budget.release(g, g.bytes)
}

// Held returns the number of bytes that the request holds.
func (g *Grant) Held() int64 {
	if g == nil {
		return 0
	}
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	return g.bytes
}

// release takes bytes from a grant and gives them to those who wait.
func (b *Budget) release(g *Grant, bytes int64) {
	if bytes > 0 {
		h := b.owners[g.owner.Name]
		g.bytes -= bytes
		h.bytes -= bytes
		b.held -= bytes
		if g.bytes == 0 {
			h.grants = slices.DeleteFunc(h.grants, func(other *Grant) bool { return other == g })
		}
		if len(h.grants) == 0 {
			delete(b.owners, g.owner.Name)
		}
	}
	// Those who hold something already go first: they release it sooner. One pass is enough: a grant never makes room for another.
	for _, growing := range []bool{true, false} {
		b.waiting = slices.DeleteFunc(b.waiting, func(w *waiter) bool {
			if (w.grant.bytes > 0) != growing || !b.fits(w.grant, w.bytes) {
				return false
			}
			b.grant(w.grant, w.bytes)
			close(w.ready)
			return true
		})
	}
}

type grantKey struct{}

// WithGrant returns a context with a grant.
func WithGrant(ctx context.Context, g *Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, g)
}

// GrantFrom returns the grant of a context, or nil.
func GrantFrom(ctx context.Context) *Grant {
	g, _ := ctx.Value(grantKey{}).(*Grant)
	return g
}
