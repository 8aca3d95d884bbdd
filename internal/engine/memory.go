package engine

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// An engine's memory is its live heap, about as much garbage that has not been collected yet, and garbage from filling
// the caches at the start. The limit is soft: close to it the garbage collector runs more often. It is at least one and
// a half times the live heap, or the collector would run all the time.
const (
	baseMemory     = 80 << 20 // besides the program itself
	workloadMemory = 14 << 10 // for each template and its Works
	otherMemory    = 16 << 20 // stacks and the like
	memoryPeriod   = time.Second
)

// governMemory limits the memory of the process in proportion to the number of templates until the context ends. When
// the process is ready and its start is over, it returns the garbage of the start to the operating system.
func governMemory(ctx context.Context, templates func() int, ready func() bool) {
	limit := func() { debug.SetMemoryLimit(memoryFor(templates(), liveMemory())) }
	limit()
	ticker := time.NewTicker(memoryPeriod)
	defer ticker.Stop()
	var start startup
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			limit()
			if ready() && start.over(allocatedMemory(), liveMemory()) {
				debug.FreeOSMemory()
			}
		}
	}
}

// startup detects the end of the start of a process.
type startup struct {
	allocated    int64 // so far
	quietPeriods int
}

const (
	quietShare   = 32 // a period that allocates less than this fraction of the live heap is quiet
	quietPeriods = 3
)

// over returns true once: after several quiet periods in succession. The time until then depends on how much there is to
// read and to compare with the members.
func (a *startup) over(allocated, live int64) bool {
	if a.quietPeriods >= quietPeriods {
		return false
	}
	if allocated-a.allocated < live/quietShare {
		a.quietPeriods++
	} else {
		a.quietPeriods = 0
	}
	a.allocated = allocated
	return a.quietPeriods == quietPeriods
}

func memoryFor(templates int, live int64) int64 {
	return max(baseMemory+workloadMemory*int64(templates), live+live/2+otherMemory)
}

// liveMemory is the live heap as of the last garbage collection.
func liveMemory() int64 { return measured("/gc/heap/live:bytes") }

// allocatedMemory is the sum of all allocations since the start.
func allocatedMemory() int64 { return measured("/gc/heap/allocs:bytes") }

func measured(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
