package autoscale

import (
	"fmt"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	resourcemetrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// Startup says when CPU usage of a pod that starts counts.
type Startup struct {
	// Initialization is the time after the start in which samples count only if they began after the pod was ready.
	Initialization time.Duration
	// FirstReadiness is the time after the start in which a change to unready means that the pod was never ready.
	FirstReadiness time.Duration
}

// DefaultStartup has the defaults of kube-controller-manager.
var DefaultStartup = Startup{Initialization: 5 * time.Minute, FirstReadiness: 30 * time.Second}

// Sample is a measured value of a pod, in thousandths.
type Sample struct {
	Value  int64
	Time   time.Time
	Window time.Duration
}

// ResourceSamples returns the samples of a resource metric by pod. A pod whose metrics lack a container's usage has none.
func ResourceSamples(pods []resourcemetrics.PodMetrics, metric Metric) map[string]Sample {
	samples := make(map[string]Sample, len(pods))
	for _, pod := range pods {
		if value, ok := usage(pod.Containers, metric); ok {
			samples[pod.Name] = Sample{Value: value, Time: pod.Timestamp.Time, Window: pod.Window.Duration}
		}
	}
	return samples
}

func usage(containers []resourcemetrics.ContainerMetrics, metric Metric) (int64, bool) {
	var sum int64
	found := false
	for _, container := range containers {
		if metric.Container != "" && container.Name != metric.Container {
			continue
		}
		quantity, ok := container.Usage[metric.Resource]
		if !ok {
			return 0, false
		}
		sum, found = add(sum, quantity.MilliValue()), true
	}
	return sum, found
}

// customWindow is the window of a custom metric that gives none.
const customWindow = time.Minute

// CustomSamples returns the samples of a custom metric by pod.
func CustomSamples(values []custommetrics.MetricValue) map[string]Sample {
	samples := make(map[string]Sample, len(values))
	for _, value := range values {
		window := customWindow
		if value.WindowSeconds != nil {
			window = time.Duration(*value.WindowSeconds) * time.Second
		}
		samples[value.DescribedObject.Name] = Sample{Value: value.Value.MilliValue(), Time: value.Timestamp.Time, Window: window}
	}
	return samples
}

// Count counts the pods of a workload.
func Count(pods []*corev1.Pod) Pods {
	counted := Pods{Total: int32(len(pods))}
	for _, pod := range pods {
		if ready := readiness(pod); pod.Status.Phase == corev1.PodRunning && ready != nil && ready.Status == corev1.ConditionTrue {
			counted.Ready++
		}
	}
	return counted
}

// Sum returns the sums of a metric over the pods of a workload. Samples are by pod; those of other pods are ignored.
func Sum(pods []*corev1.Pod, metric Metric, samples map[string]Sample, startup Startup, now time.Time) Sums {
	var s Sums
	for _, pod := range pods {
		var request int64
		if metric.Resource != "" {
			var err error
			if request, err = Request(pod, metric); err != nil {
				s.WithoutRequest++
			}
		}
		sample, sampled := samples[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
		case pod.Status.Phase == corev1.PodPending || (sampled && metric.Resource == corev1.ResourceCPU && starting(pod, sample, startup, now)):
			s.Unready++
			s.UnreadyRequests = add(s.UnreadyRequests, request)
		case !sampled:
			s.Missing = addMissing(s.Missing, []Missing{{request, 1}})
		default:
			s.Measured++
			s.Usage, s.Requests = add(s.Usage, sample.Value), add(s.Requests, request)
			s.Time, s.Window = oldest(s.Time, sample.Time), max(s.Window, sample.Window)
		}
	}
	return s
}

// starting reports whether a CPU sample is of a pod that starts, or has never been ready.
func starting(pod *corev1.Pod, sample Sample, startup Startup, now time.Time) bool {
	ready, start := readiness(pod), pod.Status.StartTime
	if ready == nil || start == nil {
		return true
	}
	unready := ready.Status == corev1.ConditionFalse
	if start.Add(startup.Initialization).After(now) {
		return unready || sample.Time.Before(ready.LastTransitionTime.Add(sample.Window))
	}
	return unready && start.Add(startup.FirstReadiness).After(ready.LastTransitionTime.Time)
}

func readiness(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Request returns what a pod requests of a metric's resource, in thousandths: the request of the pod as a whole if it has
// one, or else those of its containers and sidecars, all of which must have one.
func Request(pod *corev1.Pod, metric Metric) (int64, error) {
	if metric.Container == "" && resourcehelpers.IsPodLevelRequestsSet(pod) {
		request, ok := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})[metric.Resource]
		if !ok {
			return 0, fmt.Errorf("pod %s does not request %s", pod.Name, metric.Resource)
		}
		return request.MilliValue(), nil
	}
	var sum int64
	found := metric.Container == ""
	for container := range containers(&pod.Spec) {
		if metric.Container != "" && container.Name != metric.Container {
			continue
		}
		request, ok := container.Resources.Requests[metric.Resource]
		if !ok {
			return 0, fmt.Errorf("container %s of pod %s does not request %s", container.Name, pod.Name, metric.Resource)
		}
		sum, found = add(sum, request.MilliValue()), true
	}
	if !found {
		return 0, fmt.Errorf("pod %s has no container %s", pod.Name, metric.Container)
	}
	return sum, nil
}

// containers yields the containers and sidecars of a pod.
func containers(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range spec.Containers {
			if !yield(&spec.Containers[i]) {
				return
			}
		}
		for i := range spec.InitContainers {
			policy := spec.InitContainers[i].RestartPolicy
			if policy != nil && *policy == corev1.ContainerRestartPolicyAlways && !yield(&spec.InitContainers[i]) {
				return
			}
		}
	}
}
