package storespace

import "github.com/prometheus/client_golang/prometheus"

var defragmentations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "cellplane_store_defragmentations_total", Help: "Members of etcds of cells that were defragmented.",
}, []string{"cell"})

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{defragmentations} }
