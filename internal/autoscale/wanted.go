package autoscale

import (
	"encoding/json"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

// What an autoscaler can make the agents of clusters ask for has bounds: it must not take the time of others.
const (
	// MostMetrics is how many metrics of a workload autoscalers may want.
	MostMetrics = 16
	// MostIdentity is how large may be what names one of them, as JSON.
	MostIdentity = 512
)

// Acceptable reports whether what names a metric is not too large.
func Acceptable(m metricsv1alpha1.WantedMetric) bool {
	data, err := json.Marshal(m)
	return err == nil && len(data) <= MostIdentity
}
