package engine

import (
	"runtime"
	"testing"
)

// With the program itself, of which about 60 MiB stay in memory, an engine stays within 150 MiB plus 20 KiB per workload.
func TestMemoryFor(t *testing.T) {
	const program = 60 << 20
	for _, workloads := range []int{0, 1000, 10000, 100000} {
		if got, most := memoryFor(workloads, 0)+program, int64(150<<20+workloads*20<<10); got > most {
			t.Errorf("%d workloads may take %d bytes, more than %d", workloads, got, most)
		}
	}
}

// The limit is well above the live heap, however large that is.
func TestMemoryForLiveHeap(t *testing.T) {
	kept := make([]byte, 64<<20)
	runtime.GC()
	live := liveMemory()
	if live < int64(len(kept)) {
		t.Errorf("%d bytes are live, but %d are reported", len(kept), live)
	}
	for _, workloads := range []int{0, 1000, 10000} {
		if got := memoryFor(workloads, 400<<20); got < 600<<20 {
			t.Errorf("with 400 MiB in use for %d workloads the limit is %d bytes", workloads, got)
		}
	}
	runtime.KeepAlive(kept)
}

// A start is over after three quiet periods in succession, and is reported once.
func TestStartup(t *testing.T) {
	const live = 32 << 20
	var start startup
	allocated := int64(500 << 20)
	for i, period := range []struct {
		allocates int64
		over      bool
	}{{0, false}, {1 << 10, false}, {1 << 10, false}, {200 << 20, false}, {0, false}, {1<<20 - 1, false}, {1 << 20, false}, {0, false}, {0, false}, {0, true}, {0, false}, {300 << 20, false}, {0, false}, {0, false}, {0, false}} {
		allocated += period.allocates
		if got := start.over(allocated, live); got != period.over {
			t.Errorf("period %d: over is %t", i, got)
		}
	}
}

func TestAllocatedMemory(t *testing.T) {
	before := allocatedMemory()
	kept := make([]byte, 8<<20)
	if got := allocatedMemory() - before; got < int64(len(kept)) {
		t.Errorf("%d bytes were allocated, but %d are reported", len(kept), got)
	}
	runtime.KeepAlive(kept)
}
