package usage

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
)

// workloadKey names a workload. Its version does not matter.
type workloadKey struct {
	kind            schema.GroupKind
	namespace, name string
}

// wishesOf returns the metrics that are wanted besides the usual ones.
func wishesOf(wanted *metricsv1alpha1.WantedMetrics) map[workloadKey][]autoscale.Metric {
	wishes := map[workloadKey][]autoscale.Metric{}
	for _, w := range wanted.Workloads {
		gv, err := schema.ParseGroupVersion(w.APIVersion)
		if err != nil {
			continue // nothing has such a version
		}
		key := workloadKey{gv.WithKind(w.Kind).GroupKind(), w.Namespace, w.Name}
		metrics := wishes[key]
		for _, m := range w.Metrics {
			metric := autoscale.DecodeWanted(m)
			if !slices.Contains(usual, metric) && !slices.Contains(metrics, metric) && autoscale.Acceptable(m) && len(metrics) < autoscale.MostMetrics {
				metrics = append(metrics, metric)
			}
		}
		wishes[key] = metrics
	}
	return wishes
}

// mostBytes is how large all metrics of a workload together may be that autoscalers want besides the usual ones. Cluster-gateways refuse larger reports: one autoscaler must not silence the agent.
const mostBytes = 6 << 10

// size returns the size of what is sent in a report.
func size(part any) int {
	data, _ := json.Marshal(part) // it is of strings and numbers
	return len(data)
}

// questionsOf returns what the cluster has to be asked for workloads.
func questionsOf(workloads []workload, wishes map[workloadKey][]autoscale.Metric) map[question]bool {
	questions := map[question]bool{}
	for _, w := range workloads {
		for _, metric := range wishes[w.key] {
			if q, ok := questionOf(w, metric); ok {
				questions[q] = true
			}
		}
	}
	return questions
}

// questionOf returns what the cluster has to be asked for a metric; false if it is one of a resource.
func questionOf(w workload, metric autoscale.Metric) (question, bool) {
	if metric.Resource != "" {
		return question{}, false
	}
	q := question{Metric: metric, namespace: w.key.namespace}
	if metric.OfPods() {
		q.pods = metav1.FormatLabelSelector(w.selector)
	}
	return q, true
}
