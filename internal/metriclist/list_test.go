package metriclist

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"
)

func list(t *testing.T) []Metric {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 80 {
		t.Fatalf("there are only %d metrics", len(all))
	}
	return all
}

// TestPage expects that docs/metrics.md is what `make generate` writes.
func TestPage(t *testing.T) {
	want, err := Page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/metrics.md")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/metrics.md is out of date (%v): run `make generate`", err)
	}
}

// TestGatewayRegisters compares the list of the gateway with the registry of the process, in which its packages register theirs. The other parts register what
// they list.
func TestGatewayRegisters(t *testing.T) {
	registry, ok := legacyregistry.Registerer().(prometheus.Collector)
	if !ok {
		t.Fatalf("the registry is a %T", legacyregistry.Registerer())
	}
	registered := map[string]bool{}
	for _, metric := range describe(registry) {
		registered[metric.Name] = true
	}
	for _, metric := range list(t) {
		listed := slices.Contains(metric.Parts, "gateway")
		// Those of client-go have the names of the engine's queues, and those of the memory budget are registered later.
		if other := !strings.HasPrefix(metric.Name, prefix) || strings.HasPrefix(metric.Name, "cellplane_gateway_memory_"); listed != registered[metric.Name] && !other {
			t.Errorf("%s is listed: %t, registered: %t", metric.Name, listed, registered[metric.Name])
		}
		delete(registered, metric.Name)
	}
	for name := range registered {
		if strings.HasPrefix(name, prefix) {
			t.Errorf("%s is registered and not listed", name)
		}
	}
}

// sentence is one sentence.
var sentence = regexp.MustCompile(`^[A-Z0-9][^.]*(\.[^ .][^.]*)*\.$`)

// problems returns what is wrong with a metric by the conventions of Prometheus and ours.
func problems(t *testing.T, metric Metric) (found []string) {
	t.Helper()
	if !sentence.MatchString(metric.Help) {
		found = append(found, "its help is not one sentence: "+metric.Help)
	}
	for _, label := range metric.Labels {
		if labels[label] == "" {
			found = append(found, "the label "+label+" is not listed with what bounds its values")
		}
	}
	if slices.Contains(ofKarmada, metric.Name) {
		return found
	}
	if !strings.HasPrefix(metric.Name, prefix) && !strings.HasPrefix(metric.Name, ofKubernetes) {
		found = append(found, "its name does not begin with "+prefix)
	}
	family := &dto.MetricFamily{Name: &metric.Name, Help: &metric.Help, Metric: []*dto.Metric{{}}}
	for _, label := range metric.Labels {
		family.Metric[0].Label = append(family.Metric[0].Label, &dto.LabelPair{Name: &label, Value: ptr.To("x")})
	}
	switch metric.Type {
	case Counter:
		family.Type, family.Metric[0].Counter = dto.MetricType_COUNTER.Enum(), &dto.Counter{}
	case Gauge:
		family.Type, family.Metric[0].Gauge = dto.MetricType_GAUGE.Enum(), &dto.Gauge{}
	case Histogram:
		family.Type, family.Metric[0].Histogram = dto.MetricType_HISTOGRAM.Enum(), &dto.Histogram{}
	}
	lint, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range lint {
		found = append(found, problem.Text)
	}
	return found
}

// TestConventions checks the names, types, labels and help texts of all metrics.
func TestConventions(t *testing.T) {
	used := map[string]bool{}
	for _, metric := range list(t) {
		for _, problem := range problems(t, metric) {
			t.Errorf("%s: %s", metric.Name, problem)
		}
		for _, label := range metric.Labels {
			used[label] = true
		}
		used[metric.Name] = true
	}
	for label := range labels {
		if !used[label] {
			t.Errorf("the label %s is listed and not used", label)
		}
	}
	for _, name := range ofKarmada {
		if !used[name] {
			t.Errorf("%s is listed as one of Karmada's names and does not exist", name)
		}
	}
}

// TestProblems expects that the check finds what breaks a convention.
func TestProblems(t *testing.T) {
	good := Metric{Name: "cellplane_things_total", Type: Counter, Help: "Things.", Labels: []string{"cell"}}
	if found := problems(t, good); len(found) > 0 {
		t.Errorf("%+v has problems: %v", good, found)
	}
	for name, change := range map[string]func(*Metric){
		"prefix":                 func(m *Metric) { m.Name = "things_total" },
		"counter without _total": func(m *Metric) { m.Name = "cellplane_things" },
		"gauge with _total":      func(m *Metric) { m.Type = Gauge },
		"unit":                   func(m *Metric) { m.Name, m.Type = "cellplane_lag_milliseconds", Gauge },
		"two sentences":          func(m *Metric) { m.Help = "Things. They are counted." },
		"no sentence":            func(m *Metric) { m.Help = "Things" },
		"no help":                func(m *Metric) { m.Help = "" },
		"name of an object":      func(m *Metric) { m.Labels = []string{"deployment"} },
	} {
		bad := good
		change(&bad)
		if len(problems(t, bad)) == 0 {
			t.Errorf("%s: %+v has no problem", name, bad)
		}
	}
}
