package behaviour_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/internal/engine/autoscaler"
	"github.com/cellplane/cellplane/internal/engine/binding"
	"github.com/cellplane/cellplane/internal/engine/cronscaler"
	"github.com/cellplane/cellplane/internal/engine/detector"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/engine/tainteviction"
	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
)

// TestMetricsOfKarmada compares the types and labels of metrics with those that Karmada's dashboards and alerts know.
func TestMetricsOfKarmada(t *testing.T) {
	content, err := os.ReadFile("testdata/karmada-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	karmadas := map[string][]string{} // name → type and labels
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "#" {
			karmadas[fields[0]] = fields[1:]
		}
	}
	compared := 0
	for _, collector := range slices.Concat(
		autoscaler.Collectors(), binding.Collectors(), cronscaler.Collectors(), detector.Collectors(), execution.Collectors(), scheduler.Collectors(),
		tainteviction.Collectors(), clusterstatus.Collectors(), []prometheus.Collector{&scheduler.Scheduler{}, &tainteviction.Controller{}},
	) {
		for _, found := range describe(collector) {
			name := found[0]
			if want, known := karmadas[name]; known {
				compared++
				if !slices.Equal(found[1:], want) {
					t.Errorf("%s is %v, Karmada's is %v", name, found[1:], want)
				}
			} else if !strings.HasPrefix(name, "cellplane_") {
				t.Errorf("%s has no prefix, and is not Karmada's", name)
			}
		}
	}
	if compared < 30 {
		t.Errorf("only %d metrics were compared", compared)
	}
}

// description matches the text of a description.
var description = regexp.MustCompile(`fqName: "(\w+)".* variableLabels: \{([\w,]*)\}`)

// describe returns the name, type and labels of each metric of a collector.
func describe(collector prometheus.Collector) [][]string {
	kind := "gauge"
	switch collector.(type) {
	case *prometheus.CounterVec, prometheus.Counter:
		kind = "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		kind = "histogram"
	}
	if _, also := collector.(prometheus.Gauge); also {
		kind = "gauge"
	}
	descriptions := make(chan *prometheus.Desc, 10)
	collector.Describe(descriptions)
	close(descriptions)
	var all [][]string
	for one := range descriptions {
		parts := description.FindStringSubmatch(one.String())
		found := []string{parts[1], kind}
		if parts[2] != "" {
			found = append(found, strings.Split(parts[2], ",")...)
		}
		all = append(all, found)
	}
	return all
}
