package limits

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// collector collects the metrics of a budget.
type collector struct {
	budget                             func() *Budget
	size, held, most, waiting, refused *prometheus.Desc
}

// NewCollector returns the metrics of a budget. Their names begin with a prefix.
func NewCollector(prefix string, b *Budget) prometheus.Collector {
	return newCollector(prefix, func() *Budget { return b })
}

func newCollector(prefix string, budget func() *Budget) *collector {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"_memory_"+name, help, nil, nil)
	}
	return &collector{
		budget:  budget,
		size:    describe("budget_bytes", "Size of --memory-budget; 0 is no limit."),
		held:    describe("held_bytes", "Memory in which requests and answers are held."),
		most:    describe("held_max_bytes", "Highest amount of memory in which requests and answers were held."),
		waiting: describe("waiting_requests", "Requests that wait for memory."),
		refused: describe("refused_total", "Requests that have waited for memory in vain and got 429."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, metric := range []*prometheus.Desc{c.size, c.held, c.most, c.waiting, c.refused} {
		out <- metric
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	b := c.budget()
	used := b.Usage()
	out <- prometheus.MustNewConstMetric(c.size, prometheus.GaugeValue, float64(b.Size()))
	out <- prometheus.MustNewConstMetric(c.held, prometheus.GaugeValue, float64(used.Held))
	out <- prometheus.MustNewConstMetric(c.most, prometheus.GaugeValue, float64(used.Most))
	out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(used.Waiting))
	out <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(used.Refused))
}

// exposed are the budgets in the registry of the process, by prefix.
var exposed = struct {
	sync.Mutex
	budgets map[string]*Budget
}{budgets: map[string]*Budget{}}

// Expose shows the metrics of a budget in the registry of the process. Of several budgets with one prefix, as in tests, it shows the last.
func Expose(prefix string, b *Budget) {
	exposed.Lock()
	defer exposed.Unlock()
	_, registered := exposed.budgets[prefix]
	exposed.budgets[prefix] = b
	if registered {
		return
	}
	legacyregistry.RawMustRegister(newCollector(prefix, func() *Budget {
		exposed.Lock()
		defer exposed.Unlock()
		return exposed.budgets[prefix]
	}))
}
