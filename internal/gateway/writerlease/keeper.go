package writerlease

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/quorum"
	"github.com/cellplane/cellplane/internal/slots"
)

var (
	// ErrOutdated means that a majority of the voters accepts only later epochs.
	ErrOutdated = errors.New("a later topology is in force")
	// ErrUnconfirmed means that no majority of the voters has answered.
	ErrUnconfirmed = errors.New("no majority of the cells and the hub confirms that this gateway may write")
)

const (
	// awaitTimeout is how long a write waits for the lease.
	awaitTimeout = 5 * time.Second
	// maxSending is how many reads of one voter may be under way. Those that hang must not keep others from being sent.
	maxSending = 4
	// minGap is the least time between two reads of one voter.
	minGap = 20 * time.Millisecond
)

// Keeper keeps the writer lease of a gateway.
type Keeper struct {
	// Length is how long the lease lasts.
	Length time.Duration
	// Views returns the current view, nil if there is none.
	Views func() *topology.View
	// Known is closed once there is a view.
	Known <-chan struct{}
	// Hub reads the floor of the hub.
	Hub func(ctx context.Context) (int64, error)
	// Now reads the clocks.
	Now func() quorum.Instant

	mu      sync.Mutex
	lease   quorum.Lease
	changed chan struct{} // closed and replaced with every answer
	voters  map[*slots.Map][]string
	sending map[string]int
	sent    map[string]time.Time
	reach   map[string]time.Time // when a cell was last asked with success, or first asked
	// reported is when the hub last learnt the length of the lease; nil if it never did.
	reported *quorum.Instant
}

// New returns a Keeper for a tracker of topologies.
func New(length time.Duration, tracker *topology.Tracker, hub func(ctx context.Context) (int64, error)) *Keeper {
	return &Keeper{
		Length: length, Views: tracker.View, Known: tracker.Known(), Hub: hub, Now: func() quorum.Instant { return quorum.At(time.Now()) },
		changed: make(chan struct{}), voters: map[*slots.Map][]string{}, sending: map[string]int{}, sent: map[string]time.Time{}, reach: map[string]time.Time{},
	}
}

// Run renews the lease until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.Known:
	}
	ticker := time.NewTicker(k.Length / 3)
	defer ticker.Stop()
	held := true
	for {
		k.renew(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := k.observe(); now != held {
			held = now
			if held {
				klog.FromContext(ctx).Info("holding the writer lease again")
			} else {
				klog.FromContext(ctx).Info("lost the writer lease; writes wait, and reads carry a warning")
			}
		}
	}
}

// observe publishes the state of the lease.
func (k *Keeper) observe() bool {
	view := k.Views()
	latest := view.Map
	if view.Next != nil {
		latest = view.Next
	}
	now := k.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	held := k.held(now, latest)
	leaseHeld.Set(0)
	if held {
		leaseHeld.Set(1)
	}
	if age, found := k.lease.Age(now, latest.Epoch(), k.votersOf(latest)); found {
		leaseAge.Set(age.Seconds())
	}
	return held
}

// Held reports whether the gateway holds the lease at the epoch of a topology.
func (k *Keeper) Held(m *slots.Map) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held(k.Now(), m)
}

func (k *Keeper) held(now quorum.Instant, m *slots.Map) bool {
	return k.lease.Held(now, k.length(now), m.Epoch(), k.votersOf(m))
}

// length is how long the lease lasts now. More than the default is used only while the hub knows it: it waits that long before a failover.
func (k *Keeper) length(now quorum.Instant) time.Duration {
	if k.Length > quorum.DefaultLength && (k.reported == nil || quorum.Elapsed(*k.reported, now) > reportLasts) {
		return quorum.DefaultLength
	}
	return k.Length
}

// maxVoters bounds how many topologies the voters are remembered of.
const maxVoters = 8

func (k *Keeper) votersOf(m *slots.Map) []string {
	voters := k.voters[m]
	if voters == nil {
		if len(k.voters) >= maxVoters {
			clear(k.voters)
		}
		voters = quorum.Voters(quorum.CellsOf(m))
		k.voters[m] = voters
	}
	return voters
}

// Await waits until the gateway holds the lease at the epoch of a topology. A gateway that was paused is only delayed.
func (k *Keeper) Await(ctx context.Context, m *slots.Map) error {
	if k.Held(m) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	for first := true; ; first = false {
		k.mu.Lock()
		held, changed := k.held(k.Now(), m), k.changed
		outdated := k.lease.Outdated(m.Epoch(), k.votersOf(m))
		k.mu.Unlock()
		switch {
		case held:
			return nil
		case outdated && !first: // what was read before may be about an epoch that the view has replaced
			return ErrOutdated
		}
		k.renew(context.WithoutCancel(ctx))
		select {
		case <-ctx.Done():
			return ErrUnconfirmed
		case <-changed:
		case <-time.After(k.Length / 3):
		}
	}
}

// renew asks all voters whose last confirmation is not recent.
func (k *Keeper) renew(ctx context.Context) {
	view := k.Views()
	if view == nil {
		return
	}
	now := time.Now()
	asked := map[string]func(context.Context) (int64, error){}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range []*slots.Map{view.Map, view.Next} {
		if m == nil {
			continue
		}
		for _, voter := range k.votersOf(m) {
			if voter == quorum.Hub {
				asked[voter] = k.Hub
			}
		}
	}
	for _, cell := range view.Cells() { // also beside the voters: the hub is told which cells are reached
		if upstream := view.Upstreams[cell]; upstream != nil {
			asked[view.Name(cell)] = func(ctx context.Context) (int64, error) { return floorOf(ctx, upstream) }
		}
	}
	for voter, ask := range asked {
		if k.sending[voter] >= maxSending || now.Sub(k.sent[voter]) < minGap {
			continue
		}
		k.sending[voter]++
		k.sent[voter] = now
		go k.ask(ctx, voter, ask)
	}
	k.forget(asked)
}

// forget removes cells that are gone.
func (k *Keeper) forget(asked map[string]func(context.Context) (int64, error)) {
	now := time.Now()
	for voter := range k.reach {
		if asked[voter] == nil {
			delete(k.reach, voter)
		}
	}
	for voter := range asked {
		if _, known := k.reach[voter]; !known && voter != quorum.Hub {
			k.reach[voter] = now
		}
	}
}

// ask reads the floor of one voter. An answer that takes longer than the lease is of no use.
func (k *Keeper) ask(ctx context.Context, voter string, ask func(context.Context) (int64, error)) {
	ctx, cancel := context.WithTimeout(ctx, k.Length)
	defer cancel()
	sent := k.Now()
	floor, err := ask(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sending[voter]--
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(4).Info("a voter does not confirm the writer lease", "voter", voter, "err", err)
		}
		return
	}
	k.lease.Confirm(voter, floor, sent)
	if _, known := k.reach[voter]; known {
		k.reach[voter] = time.Now()
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// reached returns the cells that have answered within some time, and the others with when they last did.
func (k *Keeper) reached(within time.Duration) (reached []string, unreached map[string]time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	unreached = map[string]time.Time{}
	now := time.Now()
	for _, cell := range slices.Sorted(maps.Keys(k.reach)) {
		if last := k.reach[cell]; now.Sub(last) < within {
			reached = append(reached, cell)
		} else {
			unreached[cell] = last
		}
	}
	return reached, unreached
}

// maxFloor limits the answer of a voter.
const maxFloor = 64 << 10

// floorOf reads the floor of a cell. A cell without a fence accepts every epoch.
func floorOf(ctx context.Context, upstream *fleet.Upstream) (int64, error) {
	response, err := upstream.RoundTrip(forward.OwnRequest(ctx, forward.ToCell(0), http.MethodGet, fence.FloorPath, nil, nil))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFloor))
	switch {
	case err != nil:
		return 0, err
	case response.StatusCode == http.StatusNotFound:
		return 0, nil
	case response.StatusCode != http.StatusOK:
		return 0, errors.New(response.Status)
	}
	return fence.FloorIn(body)
}
