package simulate

import (
	corev1 "k8s.io/api/core/v1"
)

// Pod is a pod spec, prepared for simulation.
type Pod struct {
	// Namespace of the pod.
	Namespace string
	// Labels of the pod.
	Labels map[string]string
	// Spec of the pod. Only what scheduling looks at is read.
	Spec corev1.PodSpec
}
