package queue

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// The metrics have the names that client-go's queues have everywhere, by queue name. Queues with the same name, such as
// those of the members, are added up.
var (
	depth = gauge("depth", "Current number of keys in the queue.")
	adds  = counter("adds_total", "Number of keys added to the queue.")
	// Keys that wait for a back-off or a debounce are not in the queue yet.
	waiting    = histogram("queue_duration_seconds", "Time that a key waits in the queue before a worker takes it.")
	working    = histogram("work_duration_seconds", "Time that a worker takes for a key.")
	unfinished = gauge("unfinished_work_seconds", "Time that the keys in work have taken so far, added up.")
	retries    = counter("retries_total", "Number of failed attempts that are retried.")
)

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: "workqueue", Name: name, Help: help}, []string{"name"})
}

func counter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "workqueue", Name: name, Help: help}, []string{"name"})
}

func histogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: "workqueue", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // up to 4 minutes
	}, []string{"name"})
}

// Collectors returns the metrics of all queues.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{depth, adds, waiting, working, unfinished, retries}
}

// provider gives queues their metrics.
type provider struct{}

func (provider) NewDepthMetric(name string) workqueue.GaugeMetric { return depth.WithLabelValues(name) }

func (provider) NewAddsMetric(name string) workqueue.CounterMetric { return adds.WithLabelValues(name) }

func (provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return waiting.WithLabelValues(name)
}

func (provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return working.WithLabelValues(name)
}

func (provider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return &share{gauge: unfinished.WithLabelValues(name)}
}

// NewLongestRunningProcessorSecondsMetric returns a metric that is not shown: unfinished_work_seconds shows the same.
func (provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return hidden{}
}

// NewRetriesMetric returns a metric that is not shown: the libraries count every delayed key, but only failures are
// retries.
func (provider) NewRetriesMetric(string) workqueue.CounterMetric { return hidden{} }

type hidden struct{}

func (hidden) Inc() {}

func (hidden) Set(float64) {}

// share is the part of one queue in a sum over the queues of the same name. Each is set by one goroutine.
type share struct {
	gauge prometheus.Gauge
	value float64
}

func (s *share) Set(value float64) {
	s.gauge.Add(value - s.value)
	s.value = value
}
