package columns

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

var podColumns = []metav1.TableColumnDefinition{
	nameColumn, clusterColumn,
	text("Ready", narrow, "How many of the containers are ready."),
	text("Status", narrow, "What the pod is doing, or what keeps it from doing so."),
	text("Restarts", narrow, "How often its containers were restarted, and how long ago the last time was."),
	ageColumn,
	text("IP", wide, "The address of the pod."),
	text("Node", wide, "The node that it runs on."),
	text("Nominated Node", wide, "The node on which capacity is freed for it."),
	text("Readiness Gates", wide, "How many of the conditions for its readiness that others set are true."),
}

func podCells(pod *corev1.Pod, cluster string, now time.Time) []any {
	s := summarize(pod)
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name, cluster, itoa(s.ready) + "/" + itoa(s.total), s.status, s.restartsText(now), age(pod.CreationTimestamp, now),
		orNone(ip), orNone(pod.Spec.NodeName), orNone(pod.Status.NominatedNodeName), readinessGates(pod),
	}
}

// podSummary is the state of a pod as kubectl prints it.
type podSummary struct {
	ready, total int
	status       string
	restarts     int
	restarted    metav1.Time
}

func (s podSummary) restartsText(now time.Time) string {
	if s.restarts == 0 || s.restarted.IsZero() {
		return itoa(s.restarts)
	}
	return fmt.Sprintf("%d (%s ago)", s.restarts, duration.HumanDuration(now.Sub(s.restarted.Time)))
}

func summarize(pod *corev1.Pod) podSummary {
	s := podSummary{status: string(pod.Status.Phase), total: len(pod.Spec.Containers)}
	if pod.Status.Reason != "" {
		s.status = pod.Status.Reason
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	if !s.countInit(pod) || isTrue(pod, corev1.PodInitialized) {
		s.countMain(pod)
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == "NodeLost":
			s.status = "Unknown"
		case pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded:
			s.status = "Terminating"
		}
	}
	return s
}

// countInit counts the init containers and reports whether the pod is still initializing.
func (s *podSummary) countInit(pod *corev1.Pod) (initializing bool) {
	sidecars := map[string]bool{}
	for _, container := range pod.Spec.InitContainers {
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[container.Name] = true
			s.total++
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		container := &pod.Status.InitContainerStatuses[i]
		s.countRestarts(container)
		sidecar := sidecars[container.Name]
		if sidecar && container.Started != nil && *container.Started {
			if container.Ready {
				s.ready++
			}
			continue
		}
		ended, waiting := container.State.Terminated, container.State.Waiting
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case ended != nil:
			s.status = "Init:" + endText(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.status = "Init:" + waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

// countMain counts the regular containers.
func (s *podSummary) countMain(pod *corev1.Pod) {
	running := false
	// In reverse order, so that the first container with a reason determines it.
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		container := &pod.Status.ContainerStatuses[i]
		s.countRestarts(container)
		switch state := container.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			s.status = state.Waiting.Reason
		case state.Terminated != nil:
			s.status = endText(state.Terminated)
		case container.Ready && state.Running != nil:
			running = true
			s.ready++
		}
	}
	// A completed container does not determine the state of a pod in which others run.
	if s.status == "Completed" && running {
		s.status = "NotReady"
		if isTrue(pod, corev1.PodReady) {
			s.status = "Running"
		}
	}
}

func (s *podSummary) countRestarts(container *corev1.ContainerStatus) {
	s.restarts += int(container.RestartCount)
	if ended := container.LastTerminationState.Terminated; ended != nil && s.restarted.Before(&ended.FinishedAt) {
		s.restarted = ended.FinishedAt
	}
}

func endText(ended *corev1.ContainerStateTerminated) string {
	switch {
	case ended.Reason != "":
		return ended.Reason
	case ended.Signal != 0:
		return fmt.Sprintf("Signal:%d", ended.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", ended.ExitCode)
	}
}

func isTrue(pod *corev1.Pod, wanted corev1.PodConditionType) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == wanted {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if isTrue(pod, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}
