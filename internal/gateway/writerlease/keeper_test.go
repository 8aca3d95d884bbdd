package writerlease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/quorum"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// keeper returns a Keeper for a topology of cells without connections, so that only the hub answers.
func keeper(t *testing.T, length time.Duration, epoch int64, hub func(context.Context) (int64, error), cells ...string) (*Keeper, *slots.Map) {
	t.Helper()
	var list []slots.Cell
	for _, name := range cells {
		list = append(list, slots.Cell{Name: name, Weight: 1})
	}
	compiled, err := slots.Compile(epoch, list)
	if err != nil {
		t.Fatal(err)
	}
	k := New(length, topology.NewTracker(nil, nil, ""), hub)
	view := &topology.View{View: routing.View{Map: compiled, Ready: true}}
	view.Upstreams = append(view.Upstreams, make([]*fleet.Upstream, len(cells))...)
	k.Views = func() *topology.View { return view }
	return k, compiled
}

// confirm has a cell confirm, as if it had answered a read that was sent just now.
func (k *Keeper) confirm(voter string, floor int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lease.Confirm(voter, floor, k.Now())
	close(k.changed)
	k.changed = make(chan struct{})
}

// TestAwait renews the lease on demand: of two cells and the hub, one cell has confirmed, and the hub is asked.
func TestAwait(t *testing.T) {
	synctest.Test(t, testAwait)
}

func testAwait(t *testing.T) {
	var floor atomic.Int64
	k, m := keeper(t, quorum.DefaultLength, 5, func(context.Context) (int64, error) { return floor.Load(), nil }, "a", "b")
	k.confirm("a", 5)
	if k.Held(m) {
		t.Fatal("one of three voters is enough")
	}
	if err := k.Await(t.Context(), m); err != nil {
		t.Fatalf("waiting for the lease: %v", err)
	}
	if !k.Held(m) {
		t.Fatal("the lease is not held after it was renewed")
	}
	// A failover has raised the floors.
	later, err := slots.Compile(4, []slots.Cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	floor.Store(5)
	if err := k.Await(t.Context(), later); !errors.Is(err, ErrOutdated) {
		t.Errorf("waiting for the lease at an epoch below the floor: %v, want ErrOutdated", err)
	}
}

// TestAwaitWithoutMajority gives up when nobody answers.
func TestAwaitWithoutMajority(t *testing.T) {
	k, m := keeper(t, quorum.DefaultLength, 5, func(context.Context) (int64, error) { return 0, errors.New("cut off") }, "a", "b")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := k.Await(ctx, m); !errors.Is(err, ErrUnconfirmed) {
		t.Errorf("got %v, want ErrUnconfirmed", err)
	}
}

// TestLength uses more than the default only while the hub knows it.
func TestLength(t *testing.T) {
	now := quorum.At(time.Now())
	ago := func(d time.Duration) *quorum.Instant {
		return &quorum.Instant{Monotonic: now.Monotonic - d, Wall: now.Wall.Add(-d)}
	}
	for _, test := range []struct {
		length, want time.Duration
		reported     *quorum.Instant
	}{
		{length: 2 * time.Second, want: 2 * time.Second},
		{length: 10 * time.Second, want: quorum.DefaultLength},
		{length: 10 * time.Second, reported: ago(time.Minute), want: 10 * time.Second},
		{length: 10 * time.Second, reported: ago(reportLasts + time.Second), want: quorum.DefaultLength},
	} {
		k := &Keeper{Length: test.length, reported: test.reported}
		if got := k.length(now); got != test.want {
			t.Errorf("%v, reported at %v, lasts for %v, want %v", test.length, test.reported, got, test.want)
		}
	}
}

// TestClockIsSet sets the wall clock of a gateway back and forth while nobody confirms its lease, which ends in time. Afterwards the gateway
// writes again as soon as voters answer, whatever the time of day.
func TestClockIsSet(t *testing.T) {
	for _, set := range []time.Duration{-24 * time.Hour, -time.Second, time.Second, 24 * time.Hour} {
		k, m := keeper(t, quorum.DefaultLength, 5, func(context.Context) (int64, error) { return 0, errors.New("cut off") }, "a", "b")
		clocks := quorum.At(time.Now())
		k.Now = func() quorum.Instant { return clocks }
		pass := func(d time.Duration) { clocks.Monotonic, clocks.Wall = clocks.Monotonic+d, clocks.Wall.Add(d) }
		confirmed := func() {
			t.Helper()
			k.confirm("a", 5)
			k.confirm("b", 5)
			if !k.Held(m) {
				t.Fatalf("set by %v: the lease is not held although it was confirmed now", set)
			}
		}
		confirmed()
		clocks.Wall = clocks.Wall.Add(set)
		pass(quorum.DefaultLength)
		if k.Held(m) {
			t.Errorf("set by %v: the lease is held after its length", set)
		}
		confirmed()
		pass(quorum.DefaultLength - time.Millisecond)
		if !k.Held(m) {
			t.Errorf("set by %v: the lease that was confirmed afterwards has ended early", set)
		}
		pass(time.Millisecond)
		if k.Held(m) {
			t.Errorf("set by %v: the lease that was confirmed afterwards does not end", set)
		}
	}
}
