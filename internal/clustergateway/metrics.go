package clustergateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/index"
	"github.com/cellplane/cellplane/internal/clustergateway/serve"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/limits"
)

// storeCollector collects metrics of the stores, by resource. Those of ResourceRegistries are named search/resource/version.
type storeCollector struct {
	stores   map[string]*clustercache.Store
	searched *searchStores
}

// metricsPrefix begins the names of all metrics of this part.
const metricsPrefix = "cellplane_cluster_gateway"

// Collectors returns the metrics of a cluster-gateway, for their documentation.
func Collectors() []prometheus.Collector {
	return (&Server{api: &serve.Server{}, indexes: &index.Indexers{Metrics: index.NewMetrics()}}).collectors()
}

func (s *Server) collectors() []prometheus.Collector {
	own := []prometheus.Collector{storeCollector{s.stores, s.searched}, limits.NewCollector(metricsPrefix, s.api.Budget), expiry.Collector(), s.tunnelsMetric()}
	return append(own, s.indexes.Metrics.Collectors()...)
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricsPrefix+"_"+name, help, append([]string{"resource"}, labels...), nil)
}

var (
	objectsMetric      = describe("objects", "Cached objects, including those not shown.")
	shadowedMetric     = describe("shadowed_objects", "Objects not shown because another cluster has one of the same name.", "cluster")
	staleMetric        = describe("stale_cluster", "1 for a cluster that cannot be watched.", "cluster")
	historyMetric      = describe("history_events", "Events from which watches can resume.")
	encodedMetric      = describe("encoded_bytes", "Size of the objects before compression.")
	compressedMetric   = describe("compressed_bytes", "Size of the objects after compression.")
	reservedMetric     = describe("reserved_bytes", "Memory reserved for objects and indexes.")
	dictionariesMetric = describe("dictionaries", "Compression dictionaries in use.")
	watchersMetric     = describe("watchers", "Current watches.")
	cutMetric          = describe("cut_watchers_total", "Watches closed for being too slow.")
)

// tunnelsMetric is the number of open tunnels.
func (s *Server) tunnelsMetric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cellplane_cluster_gateway_tunnels", Help: "Open tunnels of agents."},
		func() float64 { return float64(s.tunnels.Count()) })
}

// Describe implements prometheus.Collector.
func (c storeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, metric := range []*prometheus.Desc{objectsMetric, shadowedMetric, staleMetric, historyMetric, encodedMetric, compressedMetric, reservedMetric, dictionariesMetric, watchersMetric, cutMetric} {
		out <- metric
	}
}

// Collect implements prometheus.Collector.
func (c storeCollector) Collect(out chan<- prometheus.Metric) {
	for resource, store := range c.stores {
		collect(out, resource, store)
	}
	c.searched.each(func(resource string, store *clustercache.Store) { collect(out, resource, store) })
}

func collect(out chan<- prometheus.Metric, resource string, store *clustercache.Store) {
	stats := store.Stats()
	gauge := func(metric *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(metric, prometheus.GaugeValue, value, append([]string{resource}, labels...)...)
	}
	gauge(objectsMetric, float64(stats.Objects))
	gauge(historyMetric, float64(stats.History))
	gauge(encodedMetric, float64(stats.EncodedBytes))
	gauge(compressedMetric, float64(stats.CompressedBytes))
	gauge(reservedMetric, float64(stats.ReservedBytes))
	gauge(dictionariesMetric, float64(stats.Dictionaries))
	gauge(watchersMetric, float64(stats.Watchers))
	out <- prometheus.MustNewConstMetric(cutMetric, prometheus.CounterValue, float64(stats.CutWatchers), resource)
	for _, cluster := range store.Clusters() {
		stale := 0.0
		if !cluster.Stale.IsZero() {
			stale = 1
		}
		gauge(staleMetric, stale, cluster.Name)
		gauge(shadowedMetric, float64(cluster.Shadowed), cluster.Name)
	}
}
