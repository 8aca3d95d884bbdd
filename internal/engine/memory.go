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

// governMemory keeps the memory of the process in proportion to the number of templates until the context ends. Reading everything
// leaves much behind that is not needed again: that is given back as soon as the process is ready and has come to rest.
func governMemory(ctx context.Context, templates func() int, ready func() bool) {
	limit := func() { debug.SetMemoryLimit(memoryFor(templates(), liveMemory())) }
	limit()
	ticker := time.NewTicker(memoryPeriod)
	defer ticker.Stop()
	var start arrival
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

// arrival is how a process comes to rest after its start.
type arrival struct {
	allocated    int64 // so far
	quietPeriods int
}

const (
	quietShare   = 32 // of what is kept, a period that allocates less is quiet
	quietPeriods = 3
)

// over tells once, when several periods in succession were quiet. How long it takes until then depends on how much there is to read and
// to compare with the members, not on the clock.
func (a *arrival) over(allocated, live int64) bool {
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

// liveMemory is what the collector found to be in use when it last looked.
func liveMemory() int64 { return measured("/gc/heap/live:bytes") }

// allocatedMemory is everything that was ever allocated.
func allocatedMemory() int64 { return measured("/gc/heap/allocs:bytes") }

func measured(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
