package main

import (
	"math"
	"slices"
	"time"
)

// timings are the durations of the rollouts of a wave, step by step.
type timings struct {
	present  []time.Duration // from the request to the last member
	ready    []time.Duration // from the request to the last member's own status
	reported []time.Duration // from the request to the status on the template
	lag      []time.Duration // from the last member's own status to the status on the template
	// Since the first request, the last one of the wave.
	allPresent, allReported time.Duration
}

func (w *wave) timings() timings {
	w.tracker.mu.Lock()
	defer w.tracker.mu.Unlock()
	var result timings
	first := w.rollouts[0].start
	for _, j := range w.rollouts {
		if j.start.Before(first) {
			first = j.start
		}
	}
	for _, j := range w.rollouts {
		if j.present.IsZero() || j.reported.IsZero() {
			continue
		}
		result.present = append(result.present, j.present.Sub(j.start))
		result.reported = append(result.reported, j.reported.Sub(j.start))
		if ready, all := last(j.ready); all {
			result.ready = append(result.ready, ready.Sub(j.start))
			result.lag = append(result.lag, max(0, j.reported.Sub(ready)))
		}
		result.allPresent = max(result.allPresent, j.present.Sub(first))
		result.allReported = max(result.allReported, j.reported.Sub(first))
	}
	return result
}

// percentile returns the value that a share of all values does not exceed.
func percentile(values []time.Duration, share float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
