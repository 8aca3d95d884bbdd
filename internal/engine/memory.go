package engine

import (
	"context"
	"runtime/debug"
	"time"
)

// An engine's memory is what it keeps, and as much again that the collector has not looked at yet; and what reading
// everything at the start left behind. The limits are soft: close to them the collector works harder.
const (
	baseMemory     = 80 << 20 // besides the program itself
	workloadMemory = 14 << 10 // for each template and its Works
	memoryPeriod   = 5 * time.Second
)

// governMemory keeps the memory of the process in proportion to the number of templates until the context ends.
func governMemory(ctx context.Context, templates func() int) {
	limit := func() { debug.SetMemoryLimit(memoryFor(templates())) }
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

func memoryFor(templates int) int64 { return baseMemory + workloadMemory*int64(templates) }
