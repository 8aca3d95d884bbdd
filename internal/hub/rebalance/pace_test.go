package rebalance

import (
	"testing"
	"time"
)

// settle lets transactions take as long as a function of how many there are at once says, and returns how many there are in the end.
func settle(p *pace, latency func(atOnce int) time.Duration) (least, most int) {
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
		withFewSamples int // how many objects move at once before anything is known
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
			if least, most := settle(p, test.latency); least < test.least || most > test.atMost {
				t.Errorf("it settles at %d to %d, want %d to %d", least, most, test.least, test.atMost)
			}
		})
	}
}

// TestPaceRecovers shows that the pace rises again when others have gone.
func TestPaceRecovers(t *testing.T) {
	p := newPace(64)
	settle(p, func(int) time.Duration { return time.Millisecond })
	if _, most := settle(p, func(int) time.Duration { return time.Second }); most != paceFloor {
		t.Errorf("%d objects move at once while the store is slow", most)
	}
	if least, _ := settle(p, func(int) time.Duration { return time.Millisecond }); least != 64 {
		t.Errorf("%d objects move at once when the store is fast again", least)
	}
}

func TestPaceAcquire(t *testing.T) {
	p := newPace(8)
	settle(p, func(int) time.Duration { return time.Millisecond })
	ctx := t.Context()
	if err := p.acquire(ctx, 100); err != nil { // more than ever fit
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() { next <- p.acquire(ctx, 3) }()
	select {
	case <-next:
		t.Fatal("others moved beside a slot that takes more than there is")
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
