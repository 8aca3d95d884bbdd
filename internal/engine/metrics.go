package engine

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/cellplane/cellplane/internal/engine/appfailover"
	"github.com/cellplane/cellplane/internal/engine/autoscaler"
	"github.com/cellplane/cellplane/internal/engine/binding"
	"github.com/cellplane/cellplane/internal/engine/cronscaler"
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/engine/detector"
	"github.com/cellplane/cellplane/internal/engine/eviction"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/engine/tainteviction"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/ledger"
)

// Collectors returns the metrics of an engine, for their documentation.
func Collectors() []prometheus.Collector {
	return (&engine{config: &Config{}, metrics: []prometheus.Collector{&scheduler.Scheduler{}, &tainteviction.Controller{}}}).collectors()
}

// registry returns all metrics of an engine and its process.
func (e *engine) registry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(e.collectors()...)
	return registry
}

func (e *engine) collectors() []prometheus.Collector {
	all := []prometheus.Collector{expiry.Collector()}
	for _, group := range [][]prometheus.Collector{queue.Collectors(), detector.Collectors(), scheduler.Collectors(), autoscaler.Collectors(), cronscaler.Collectors(), tainteviction.Collectors(), eviction.Collectors(), appfailover.Collectors(), descheduler.Collectors(), binding.Collectors(), execution.Collectors(), interpreter.Collectors(), ledger.Collectors()} {
		all = append(all, group...)
	}
	for _, collector := range fleet.Collectors() {
		all = append(all, collector)
	}
	for _, waiting := range e.metrics {
		all = append(all, whileLeading{waiting, e})
	}
	gauge := func(name, help string, value func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"cell": e.config.Cell}}, value))
	}
	gauge("cellplane_engine_templates", "Number of objects that may be templates.", func() float64 { return float64(e.cell.Templates.Len()) })
	gauge("cellplane_engine_works", "Number of Works.", func() float64 { return float64(e.cell.Works.Len()) })
	gauge("cellplane_engine_leading", "Whether this engine leads (1) or stands by (0).", func() float64 {
		if e.leading.Load() {
			return 1
		}
		return 0
	})
	return all
}

// whileLeading are metrics about what an engine has to do. The queues of one that stands by fill, too.
type whileLeading struct {
	prometheus.Collector
	engine *engine
}

// Collect collects the metrics of an engine that leads.
func (w whileLeading) Collect(samples chan<- prometheus.Metric) {
	if w.engine.leading.Load() {
		w.Collector.Collect(samples)
	}
}

// notReady returns why the engine is not ready.
func (e *engine) notReady() error {
	if !e.ready.Load() {
		return errors.New("the caches of the cell are not filled yet")
	}
	return e.skew.Problem()
}
