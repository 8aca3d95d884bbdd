package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/internal/engine/queue"
)

// TestMetrics checks that every kind of queue reports depth, adds, durations and retries under its name, and that only
// failures count as retries.
func TestMetrics(t *testing.T) {
	for name, q := range map[string]*queue.Queue[string]{
		"plain":       queue.NewWithBackoff[string]("plain", time.Millisecond, time.Second),
		"prioritized": queue.NewWithPriority("prioritized", time.Millisecond, time.Second, func(string) int { return 0 }),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			q.Add("key")
			attempts := 0
			q.Run(ctx, 1, func(context.Context, string) error {
				switch attempts++; attempts {
				case 1:
					return errors.New("failed")
				case 2:
					return queue.Later{After: time.Millisecond}
				default:
					cancel()
					return nil
				}
			})
			for metric, want := range map[string]float64{
				"workqueue_depth": 0, "workqueue_adds_total": 3, "workqueue_retries_total": 1,
				"workqueue_queue_duration_seconds": 3, "workqueue_work_duration_seconds": 3,
			} {
				if got := value(t, metric, name); got != want {
					t.Errorf("%s is %v, want %v", metric, got, want)
				}
			}
		})
	}
}

// value returns the value of a metric of a queue; of a histogram, the number of observations.
func value(t *testing.T, metric, queueName string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(queue.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			if family.GetName() != metric || sample.GetLabel()[0].GetValue() != queueName {
				continue
			}
			switch {
			case sample.GetHistogram() != nil:
				return float64(sample.GetHistogram().GetSampleCount())
			case sample.GetCounter() != nil:
				return sample.GetCounter().GetValue()
			default:
				return sample.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("%s has no sample for %s", metric, queueName)
	return 0
}
