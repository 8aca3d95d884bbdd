package main

import (
	"math"
	"runtime/metrics"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// threadClock returns the CPU time of the calling thread, to which the goroutine must be locked. Unlike wall time it does not depend on
// other load on the machine.
func threadClock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// quantile returns a quantile of the durations.
func quantile(durations []time.Duration, share float64) time.Duration {
	slices.Sort(durations)
	return durations[min(int(share*float64(len(durations))), len(durations)-1)]
}

const pauseMetric = "/sched/pauses/total/gc:seconds"

// pauses measures the stop-the-world pauses of the garbage collector.
type pauses struct{ before []uint64 }

func startPauses() *pauses { return &pauses{before: slices.Clone(readPauses().Counts)} }

func readPauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: pauseMetric}}
	metrics.Read(sample)
	return sample[0].Value.Float64Histogram()
}

func (p *pauses) p99() time.Duration {
	now := readPauses()
	var total, below uint64
	for i, count := range now.Counts {
		total += count - p.before[i]
	}
	for i, count := range now.Counts {
		below += count - p.before[i]
		if total > 0 && float64(below) >= 0.99*float64(total) {
			if upper := now.Buckets[i+1]; !math.IsInf(upper, 1) {
				return time.Duration(upper * float64(time.Second))
			}
			return time.Duration(now.Buckets[i] * float64(time.Second))
		}
	}
	return 0
}
