package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/slots"
)

// writes are the latencies of writes to moving objects and to others.
type writes struct {
	mu             sync.Mutex
	moving, others []time.Duration
	failed         int
	lastError      error
	// phase of the change, and the latencies of the writes to others by the phase in which they ended.
	phase   string
	byPhase map[string][]time.Duration
}

// enter begins a phase.
func (r *writes) enter(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
}

func (r *writes) record(moving bool, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.failed, r.lastError = r.failed+1, err
	case moving:
		r.moving = append(r.moving, took)
	default:
		r.others = append(r.others, took)
		if r.byPhase == nil {
			r.byPhase = map[string][]time.Duration{}
		}
		r.byPhase[r.phase] = append(r.byPhase[r.phase], took)
	}
}

func (r *writes) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.moving) + len(r.others)
}

// add adds the writes of another load.
func (r *writes) add(other *writes) {
	r.moving, r.others = append(r.moving, other.moving...), append(r.others, other.others...)
	r.failed += other.failed
	if other.lastError != nil {
		r.lastError = other.lastError
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

func (r *writes) print(when string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, part := range []struct {
		what string
		all  []time.Duration
	}{{"objects that move", r.moving}, {"others", r.others}} {
		if len(part.all) > 0 {
			fmt.Printf("%-12s %-18s %6d writes  p50 %7.1f ms  p99 %7.1f ms\n", when, part.what, len(part.all),
				quantile(part.all, 0.5).Seconds()*1000, quantile(part.all, 0.99).Seconds()*1000)
		}
	}
	for phase, all := range r.byPhase {
		if phase != "" {
			fmt.Printf("%-12s others, in phase %-8s %6d writes  p50 %7.1f ms  p99 %7.1f ms\n", when, phase, len(all), quantile(all, 0.5).Seconds()*1000, quantile(all, 0.99).Seconds()*1000)
		}
	}
	if r.failed > 0 {
		fmt.Printf("%-12s %d writes FAILED, the last one: %v\n", when, r.failed, r.lastError)
	}
}

// write writes random objects at a steady rate until the context ends. Half of the writes go to objects that move, if
// there are any.
func (w *world) write(ctx context.Context, moving map[slots.Slot]bool, into *writes) {
	isMoving := func(i int) bool { return moving[slots.Of(namespace, nameOf(i))] }
	ticker := time.NewTicker(time.Second / time.Duration(w.rate))
	defer ticker.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	free := make(chan struct{}, w.workers*4)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		i := rand.IntN(w.objects)
		for tries := 0; tries < 1000 && len(moving) > 0 && isMoving(i) != (n%2 == 0); tries++ {
			i = rand.IntN(w.objects)
		}
		select {
		case free <- struct{}{}:
		default:
			continue // enough are under way
		}
		group.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n)
			_, err := w.gateway.CoreV1().ConfigMaps(namespace).Patch(context.WithoutCancel(ctx), nameOf(i), types.MergePatchType, patch, metav1.PatchOptions{})
			into.record(isMoving(i), time.Since(began), err)
		})
	}
}

// writeFor writes for the configured time.
func (w *world) writeFor(ctx context.Context, moving map[slots.Slot]bool) *writes {
	ctx, cancel := context.WithTimeout(ctx, w.settings.load)
	defer cancel()
	var result writes
	w.write(ctx, moving, &result)
	return &result
}

// round writes for the configured time, and returns also the CPU time beyond the idle usage.
func (w *world) round(ctx context.Context, when string, moving map[slots.Slot]bool) (*writes, usage) {
	idle := w.idle(ctx)
	before, began := w.cpu(ctx), time.Now()
	result := w.writeFor(ctx, moving)
	cost := w.cpu(ctx).since(before).less(idle, time.Since(began).Seconds())
	result.print(when)
	fmt.Printf("%-12s %.2f ms of CPU per write, and %.3f s per second without load\n", when, cost.per(result.count()), idle.sum().Seconds())
	return result, cost
}

// quietly writes for several rounds without a change. The differences between rounds show how accurate the figures are.
func (w *world) quietly(ctx context.Context, when string, moving map[slots.Slot]bool) (*writes, usage) {
	var all writes
	spent := usage{}
	w.calm(ctx)
	for range w.rounds {
		result, cost := w.round(ctx, when, moving)
		all.add(result)
		spent = spent.plus(cost)
	}
	all.print(when + ", all")
	return &all, spent
}
