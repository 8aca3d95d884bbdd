package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// usage is CPU time by program.
type usage map[string]time.Duration

// cpu returns the CPU time of all processes so far.
func (w *world) cpu(ctx context.Context) usage {
	sums := usage{}
	for _, p := range w.federation.Status(ctx) {
		program := p.Name[strings.LastIndexByte(p.Name, '/')+1:]
		if strings.HasPrefix(p.Name, "hub/") {
			program = "hub " + program
		}
		sums[program] += p.CPU
	}
	return sums
}

// idle returns the CPU time per second without load.
func (w *world) idle(ctx context.Context) usage {
	before, began := w.cpu(ctx), time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(w.settings.load / 2):
	}
	return w.cpu(ctx).since(before).times(1 / time.Since(began).Seconds())
}

// calm waits until the idle usage no longer falls: a new cell is busy at first.
func (w *world) calm(ctx context.Context) {
	for last := w.idle(ctx).sum(); ctx.Err() == nil; {
		now := w.idle(ctx).sum()
		if now*5 >= last*4 {
			return
		}
		last = now
	}
}

// since returns the usage since an earlier one.
func (u usage) since(before usage) usage { return u.less(before, 1) }

// less returns the usage minus a multiple of another one.
func (u usage) less(other usage, times float64) usage {
	rest := usage{}
	for program, spent := range u {
		rest[program] = spent - time.Duration(times*float64(other[program]))
	}
	return rest
}

// plus returns the sum of two usages.
func (u usage) plus(other usage) usage {
	both := usage{}
	for _, part := range []usage{u, other} {
		for program, spent := range part {
			both[program] += spent
		}
	}
	return both
}

// per returns the milliseconds per operation.
func (u usage) per(count int) float64 { return u.sum().Seconds() * 1000 / float64(max(count, 1)) }

func (u usage) times(factor float64) usage {
	multiple := usage{}
	for program, spent := range u {
		multiple[program] = time.Duration(factor * float64(spent))
	}
	return multiple
}

func (u usage) sum() time.Duration {
	var sum time.Duration
	for _, spent := range u {
		sum += spent
	}
	return sum
}

// print prints the CPU time of each program per operation.
func (u usage) print(when, what string, count int) {
	per := func(spent time.Duration) float64 { return spent.Seconds() * 1000 / float64(max(count, 1)) }
	fmt.Printf("CPU %s, per %s: %.2f ms", when, what, per(u.sum()))
	for _, program := range slices.SortedFunc(maps.Keys(u), func(a, b string) int { return int(u[b] - u[a]) }) {
		if spent := per(u[program]); spent >= 0.005 || spent <= -0.005 {
			fmt.Printf("; %s %.2f", program, per(u[program]))
		}
	}
	fmt.Println()
}
