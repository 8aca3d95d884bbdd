package columns

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

var workloadMetricsColumns = []metav1.TableColumnDefinition{
	nameColumn, clusterColumn,
	text("Pods", narrow, "How many pods are ready, and how many there are."),
	text("CPU", narrow, "What the pods with a sample use of CPU."),
	text("Memory", narrow, "What the pods with a sample use of memory."),
	ageColumn,
}

func workloadMetricsCells(m *metricsv1alpha1.WorkloadMetrics, cluster string, now time.Time) []any {
	cpu, memory := "<unknown>", "<unknown>"
	if usage := usageOf(m, corev1.ResourceCPU); usage != nil {
		cpu = fmt.Sprintf("%dm", usage.MilliValue())
	}
	if usage := usageOf(m, corev1.ResourceMemory); usage != nil {
		memory = fmt.Sprintf("%dMi", usage.Value()>>20)
	}
	return []any{m.Name, cluster, fmt.Sprintf("%d/%d", m.Pods.Ready, m.Pods.Total), cpu, memory, age(m.CreationTimestamp, now)}
}

// usageOf returns what the pods use of a resource in all containers.
func usageOf(m *metricsv1alpha1.WorkloadMetrics, name corev1.ResourceName) *resource.Quantity {
	for i := range m.Metrics {
		if sums := &m.Metrics[i]; sums.Resource == name && sums.Container == "" && sums.Measured.Pods > 0 {
			return &sums.Measured.Usage
		}
	}
	return nil
}
