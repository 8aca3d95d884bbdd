package rebalance

import (
	"testing"
	"time"
)

// converge runs transactions whose latency depends on how many there are at once, and returns the range in which
// their number ends.
func converge(p *pace, latency func(atOnce int) time.Duration) (least, most int) {
	for range 200 * paceSamples {
		p.observe(latency(p.now()))
	}
	least, most = p.now(), p.now()
	for range 50 * paceSamples {
		p.observe(latency(p.now()))
		least, most = min(least, p.now()), max(most, p.now())
	}
	return least, most
}

func TestPace(t *testing.T) {
	for _, test := range []struct {
		name           string
		window         int
		latency        func(atOnce int) time.Duration
		least, atMost  int
		withFewSamples int // how many objects move at once at first
	}{
		{"a store that does not slow down", 64, func(int) time.Duration { return time.Millisecond }, 64, 64, 1},
		{"a store that queues beyond 10", 64, func(n int) time.Duration { return time.Duration(max(n, 10)) * time.Millisecond }, 14, 26, 1},
		{"a store that queues from the beginning", 64, func(n int) time.Duration { return time.Duration(n) * time.Millisecond }, 2, 5, 1},
		{"a window smaller than the floor", 2, func(n int) time.Duration { return time.Duration(n*n*n) * time.Millisecond }, 1, 2, 1},
		{"one by one", 1, func(int) time.Duration { return time.Millisecond }, 1, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPace(test.window)
			if p.now() != test.withFewSamples {
				t.Errorf("it begins with %d at once", p.now())
			}
			if least, most := converge(p, test.latency); least < test.least || most > test.atMost {
				t.Errorf("it converges to %d to %d, want %d to %d", least, most, test.least, test.atMost)
			}
		})
	}
}

// TestPaceRecovers checks that the pace rises again when the store is fast again.
func TestPaceRecovers(t *testing.T) {
	p := newPace(64)
	converge(p, func(int) time.Duration { return time.Millisecond })
	if _, most := converge(p, func(int) time.Duration { return time.Second }); most != paceFloor {
		t.Errorf("%d objects move at once while the store is slow", most)
	}
	if least, _ := converge(p, func(int) time.Duration { return time.Millisecond }); least != 64 {
		t.Errorf("%d objects move at once when the store is fast again", least)
	}
}

func TestPaceAcquire(t *testing.T) {
	p := newPace(8)
	converge(p, func(int) time.Duration { return time.Millisecond })
	ctx := t.Context()
	if err := p.acquire(ctx, 100); err != nil { // more than ever fit
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() { next <- p.acquire(ctx, 3) }()
	select {
	case <-next:
		t.Fatal("others moved beside a slot that exceeds the limit")
	default:
	}
	p.release(100)
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if err := p.acquire(ctx, 5); err != nil { // 3 + 5 are as many as there may be
		t.Fatal(err)
	}
}
