package engine

import "testing"

// With the program itself, of which about 60 MiB stay in memory, an engine stays within 150 MiB and 20 KiB per workload.
func TestMemoryFor(t *testing.T) {
	const program = 60 << 20
	for _, workloads := range []int{0, 1000, 10000, 100000} {
		if got, most := memoryFor(workloads)+program, int64(150<<20+workloads*20<<10); got > most {
			t.Errorf("%d workloads may take %d bytes, more than %d", workloads, got, most)
		}
	}
}
