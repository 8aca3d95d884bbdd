// Package metriclist lists the metrics that the parts register, for docs/metrics.md, and for the tests of alerts and dashboards.
package metriclist

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/cellplane/cellplane/internal/agent"
	"github.com/cellplane/cellplane/internal/clustergateway"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/hub/manager"
)

// The types of metrics.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Metric is a metric of one or more parts.
type Metric struct {
	Name, Type, Help string
	Labels           []string
	// Parts have it.
	Parts []string
}

// parts are those that have metrics of their own, in the order of the page.
var parts = []struct {
	name       string
	collectors func() []prometheus.Collector
}{
	{"gateway", gateway.Collectors},
	{"hub-manager", func() []prometheus.Collector { return append(manager.Collectors(), expiry.Collector()) }},
	{"engine", engine.Collectors},
	{"cluster-gateway", clustergateway.Collectors},
	{"agent", func() []prometheus.Collector { return append(agent.Collectors(), expiry.Collector()) }},
}

// All returns the metrics of all parts, sorted by name. It fails if parts disagree about one.
func All() ([]Metric, error) {
	byName := map[string]*Metric{}
	for _, part := range parts {
		for _, collector := range part.collectors() {
			for _, found := range describe(collector) {
				known := byName[found.Name]
				if known == nil {
					known = &found
					byName[found.Name] = known
				}
				if known.Type != found.Type || known.Help != found.Help || !slices.Equal(known.Labels, found.Labels) {
					return nil, fmt.Errorf("%s of the %s is %+v, that of others is %+v", found.Name, part.name, found, *known)
				}
				known.Parts = append(known.Parts, part.name)
			}
		}
	}
	var all []Metric
	for _, metric := range byName {
		all = append(all, *metric)
	}
	slices.SortFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// description matches the text of a prometheus.Desc, which has no other way to read it.
var description = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "(.*)", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// stability is what component-base puts before a help text.
var stability = regexp.MustCompile(`^\[[A-Z]+\] `)

func describe(collector prometheus.Collector) (all []Metric) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		collector.Describe(descriptions)
	}()
	for description := range descriptions {
		all = append(all, read(description.String(), collector))
	}
	return all
}

func read(text string, collector prometheus.Collector) Metric {
	match := description.FindStringSubmatch(text)
	if match == nil {
		panic("not the description of a metric: " + text) // another version of the library
	}
	metric := Metric{Name: match[1], Help: stability.ReplaceAllString(match[2], "")}
	for constant := range strings.SplitSeq(match[3], ",") {
		if name, _, ok := strings.Cut(constant, "="); ok {
			metric.Labels = append(metric.Labels, name)
		}
	}
	if match[4] != "" {
		metric.Labels = append(metric.Labels, strings.Split(match[4], ",")...)
	}
	metric.Type = typeOf(collector, metric.Name)
	return metric
}

// typeOf returns the type of the metrics of a collector. Collectors of our own have counters and gauges, and only counters end in _total.
func typeOf(collector prometheus.Collector, name string) string {
	switch collector.(type) {
	case *prometheus.CounterVec, *metrics.CounterVec, *metrics.Counter:
		return Counter
	case *prometheus.GaugeVec, *metrics.GaugeVec, *metrics.Gauge, prometheus.Gauge:
		return Gauge
	case *prometheus.HistogramVec, *metrics.HistogramVec, *metrics.Histogram, prometheus.Histogram:
		return Histogram
	case prometheus.Counter:
		return Counter
	}
	if strings.HasSuffix(name, "_total") && name != "eviction_kind_total" { // that one has its name from Karmada
		return Counter
	}
	return Gauge
}
