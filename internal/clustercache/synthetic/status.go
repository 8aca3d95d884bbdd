package synthetic

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (w workload) status(one individual, spec *corev1.PodSpec, status *corev1.PodStatus) {
	created, ready := one.created, one.ready
	*status = corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
		HostIP: one.host, HostIPs: []corev1.HostIP{{IP: one.host}}, PodIP: one.address, PodIPs: []corev1.PodIP{{IP: one.address}},
		StartTime: new(metav1.NewTime(created.Add(time.Second))),
	}
	for _, condition := range []struct {
		of corev1.PodConditionType
		at time.Time
	}{
		{corev1.PodReadyToStartContainers, created.Add(3 * time.Second)}, {corev1.PodInitialized, created.Add(time.Second)},
		{corev1.PodReady, ready}, {corev1.ContainersReady, ready}, {corev1.PodScheduled, created},
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition.of, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(condition.at), ObservedGeneration: 1})
	}
	for c := range spec.Containers {
		container := &spec.Containers[c]
		image := random("image", w.number)
		if c > 0 {
			image = random(container.Image, 0)
		}
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Ready: true, Started: new(true), Image: container.Image,
			ImageID: container.Image + "@sha256:" + digest(image), ContainerID: "containerd://" + one.containers[c],
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(ready.Add(-time.Second))}},
		})
	}
}
