package pushed

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache/generic"
)

func nameOf(workload metricsv1alpha1.WorkloadReference, cluster string) string {
	return names.WorkloadMetricsName(workload.Kind, workload.Name, cluster)
}

// body is a WorkloadMetrics without its metadata.
type body struct {
	Cluster   string                            `json:"cluster"`
	Workload  metricsv1alpha1.WorkloadReference `json:"workload"`
	Timestamp metav1.Time                       `json:"timestamp"`
	Pods      metricsv1alpha1.PodCounts         `json:"pods"`
	Metrics   []metricsv1alpha1.MetricSums      `json:"metrics,omitempty"`
}

// encode encodes an item of a report for the Store. Its version is a hash of it: an item that is reported again is no
// change.
func encode(cluster string, item *metricsv1alpha1.WorkloadMetrics) ([]byte, error) {
	rest, err := json.Marshal(body{Cluster: cluster, Workload: item.Workload, Timestamp: item.Timestamp, Pods: item.Pods, Metrics: item.Metrics})
	if err != nil {
		return nil, fmt.Errorf("encoding the metrics of %s %s/%s: %w", item.Workload.Kind, item.Namespace, item.Workload.Name, err)
	}
	meta := metav1.ObjectMeta{Namespace: item.Namespace, Name: nameOf(item.Workload, cluster), UID: item.UID, CreationTimestamp: item.CreationTimestamp}
	version := xxhash.Sum64(rest)
	if item.Labels[names.AutoscalerLabel] == "true" {
		meta.Labels = map[string]string{names.AutoscalerLabel: "true"}
		version++
	}
	meta.ResourceVersion = strconv.FormatUint(version, 10)
	return generic.Join(&meta, rest)
}

// Decode decodes what the Store has. Without content it is the object of a bookmark.
func Decode(raw []byte) (runtime.Object, error) {
	meta, rest, err := generic.Split(raw)
	if err != nil {
		return nil, err
	}
	var b body
	if len(rest) > 0 {
		if err := json.Unmarshal(rest, &b); err != nil {
			return nil, fmt.Errorf("decoding the metrics of a workload: %w", err)
		}
	}
	metrics := &metricsv1alpha1.WorkloadMetrics{
		ObjectMeta: *meta, Cluster: b.Cluster, Workload: b.Workload, Timestamp: b.Timestamp, Pods: b.Pods, Metrics: b.Metrics,
	}
	metrics.SetGroupVersionKind(Kind().GroupVersionKind)
	return metrics, nil
}
