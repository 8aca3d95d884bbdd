package agent

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// Collectors returns the metrics of an agent, for their documentation.
func Collectors() []prometheus.Collector { return (&agent{}).collectors() }

// gatherers returns all metrics of an agent. Those of the process are in the registry of controller-runtime.
func (a *agent) gatherers() prometheus.Gatherers {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.collectors()...)
	return prometheus.Gatherers{registry, metrics.Registry}
}

func (a *agent) collectors() (all []prometheus.Collector) {
	for _, group := range [][]prometheus.Collector{queue.Collectors(), execution.Collectors(), clusterstatus.Collectors(), interpreter.Collectors()} {
		all = append(all, group...)
	}
	gauge := func(name, help string, value func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("cellplane_agent_works", "Number of Works of the cluster.", func() float64 {
		if a.cell == nil {
			return 0
		}
		return float64(a.cell.Works.Len())
	})
	gauge("cellplane_agent_leading", "Whether this agent leads (1) or stands by (0).", func() float64 {
		if a.leading.Load() {
			return 1
		}
		return 0
	})
	gauge("cellplane_agent_tunnels", "Number of open tunnels to the federation.", func() float64 {
		if a.tunnels == nil {
			return 0
		}
		return float64(a.tunnels.Count())
	})
	return all
}

// notReady returns why the agent is not ready.
func (a *agent) notReady() error {
	if !a.ready.Load() {
		return errors.New("the Works of the cluster are not known yet")
	}
	return nil
}
