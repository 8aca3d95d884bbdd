package usage

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
)

// usual are the metrics of every workload.
var usual = []autoscale.Metric{{Resource: corev1.ResourceCPU}, {Resource: corev1.ResourceMemory}}

// summing is a workload with its pods, and all that the cluster knows of pods and of what autoscalers want.
type summing struct {
	workload
	pods    []*corev1.Pod
	used    map[types.NamespacedName]v1beta1.PodMetrics
	answers map[question]answer
	now     time.Time
}

// sum returns the usual metrics of a workload, and more that autoscalers want.
func sum(s summing, more []autoscale.Metric) metricsv1alpha1.WorkloadMetrics {
	counts := autoscale.Count(s.pods)
	item := metricsv1alpha1.WorkloadMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.namespace, UID: s.uid, CreationTimestamp: s.created},
		Workload:   metricsv1alpha1.WorkloadReference{APIVersion: s.apiVersion, Kind: s.key.kind.Kind, Name: s.key.name},
		Timestamp:  metav1.NewTime(s.now), Pods: metricsv1alpha1.PodCounts{Total: counts.Total, Ready: counts.Ready},
	}
	var samples []v1beta1.PodMetrics
	for _, pod := range s.pods {
		if sample, found := s.used[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; found {
			samples = append(samples, sample)
		}
	}
	room := mostBytes
	for i, metric := range slices.Concat(usual, more) {
		part := s.part(metric, samples)
		if i >= len(usual) {
			if room -= size(part); room < 0 {
				break
			}
		}
		item.Metrics = append(item.Metrics, part)
	}
	return item
}

// part returns what the cluster knows of a metric.
func (s summing) part(metric autoscale.Metric, used []v1beta1.PodMetrics) metricsv1alpha1.MetricSums {
	q, asked := questionOf(s.workload, metric)
	if !asked {
		samples := autoscale.ResourceSamples(used, metric)
		sums := autoscale.Sum(s.pods, metric, samples, autoscale.DefaultStartup, s.now)
		if len(samples) == 0 && len(sums.Missing) > 0 {
			return autoscale.EncodeFailure(metric, noSample) // as in Kubernetes, where there are metrics of no pod
		}
		return autoscale.Encode(metric, sums)
	}
	switch known := s.answers[q]; {
	case known.err != nil:
		return autoscale.EncodeFailure(metric, bounded(known.err.Error()))
	case !metric.OfPods():
		return autoscale.EncodeValue(metric, known.value)
	case len(known.samples) == 0 && len(s.pods) > 0:
		return autoscale.EncodeFailure(metric, "no pod has a value")
	default:
		return autoscale.Encode(metric, autoscale.Sum(s.pods, metric, known.samples, autoscale.DefaultStartup, s.now))
	}
}

// noSample is the failure of a metric of a resource that the cluster does not measure.
const noSample = "no pod has a sample"

// mostText is how long the description of a failure may be.
const mostText = 200

func bounded(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}
