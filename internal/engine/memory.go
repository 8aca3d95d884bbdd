package engine

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// An engine's memory is what it keeps, and as much again that the collector has not looked at yet; and what reading
// everything at the start left behind. The limits are soft: close to them the collector works harder. What is kept has
// half as much room again in any case, or else the collector would do nothing but work.
const (
	baseMemory     = 80 << 20 // besides the program itself
	workloadMemory = 14 << 10 // for each template and its Works
	otherMemory    = 16 << 20 // stacks and the like
	memoryPeriod   = time.Second
)

// governMemory keeps the memory of the process in proportion to the number of templates until the context ends.
func governMemory(ctx context.Context, templates func() int) {
	limit := func() { debug.SetMemoryLimit(memoryFor(templates(), liveMemory())) }
	limit()
	ticker := time.NewTicker(memoryPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			limit()
		}
	}
}

func memoryFor(templates int, live int64) int64 {
	return max(baseMemory+workloadMemory*int64(templates), live+live/2+otherMemory)
}

// liveMemory is what the collector found to be in use when it last looked.
func liveMemory() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
