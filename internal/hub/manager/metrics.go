package manager

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
	cellfailover "github.com/cellplane/cellplane/internal/hub/failover"
	"github.com/cellplane/cellplane/internal/hub/rebalance"
	"github.com/cellplane/cellplane/internal/hub/replicate"
	"github.com/cellplane/cellplane/internal/hub/storespace"
)

// Collectors returns the metrics of a hub manager, for their documentation.
func Collectors() []prometheus.Collector {
	return append((&status{}).collectors(), &replicate.Replicator{}, cellConditions{})
}

// collectors returns the metrics of every replica.
func (s *status) collectors() []prometheus.Collector {
	all := []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cellplane_hub_manager_leading", Help: "Whether this hub manager leads (1) or stands by (0).",
	}, func() float64 {
		if s.report().Working {
			return 1
		}
		return 0
	})}
	for _, group := range [][]prometheus.Collector{rebalance.Collectors(), backup.Collectors(), cellfailover.Collectors(), clusterstatus.Collectors(), storespace.Collectors()} {
		all = append(all, group...)
	}
	for _, collector := range fleet.Collectors() {
		all = append(all, collector)
	}
	return all
}

var conditionDesc = prometheus.NewDesc("cellplane_cell_condition", "1 for the present status and reason of each condition of a Cell.",
	[]string{"cell", "condition", "status", "reason"}, nil)

// listTimeout is how long a request for metrics waits for the Cells.
const listTimeout = 5 * time.Second

// cellConditions are the conditions of the Cells as metrics.
type cellConditions struct {
	cells client.Reader // cached
}

// Describe implements prometheus.Collector.
func (c cellConditions) Describe(out chan<- *prometheus.Desc) { out <- conditionDesc }

// Collect implements prometheus.Collector.
func (c cellConditions) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var all cellplanev1alpha1.CellList
	if err := c.cells.List(ctx, &all); err != nil {
		return // the cache has not begun
	}
	for i := range all.Items {
		for _, condition := range all.Items[i].Status.Conditions {
			out <- prometheus.MustNewConstMetric(conditionDesc, prometheus.GaugeValue, 1, all.Items[i].Name, condition.Type, string(condition.Status), condition.Reason)
		}
	}
}
