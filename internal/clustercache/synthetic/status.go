package synthetic

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (w workload) status(r *rand.Rand, spec *corev1.PodSpec, status *corev1.PodStatus, created time.Time, revision int) {
	host, ip := address(random("host", len(spec.NodeName)+int(spec.NodeName[6]))), address(r)
	ready := created.Add(time.Duration(5+r.IntN(90)+revision) * time.Second)
	*status = corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
		HostIP: host, HostIPs: []corev1.HostIP{{IP: host}}, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
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
			Name: container.Name, Ready: true, Started: new(true), Image: container.Image, RestartCount: int32(revision % 3),
			ImageID: container.Image + "@sha256:" + digest(image), ContainerID: "containerd://" + digest(r),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(ready.Add(-time.Second))}},
		})
	}
}
