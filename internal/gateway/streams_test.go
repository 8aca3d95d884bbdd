package gateway_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testStreams uses logs, exec, attach and port-forward of a pod through clusters/proxy.
func testStreams(t *testing.T, member *controlplane.ControlPlane, config *rest.Config) {
	pod := runPod(t, clientFor(t, config))
	gatewaytest.CheckStreams(t, config, gatewaytest.Pod{Namespace: pod.Namespace, Name: pod.Name, Log: member.PodLog()})
	t.Run("Headers", func(t *testing.T) {
		gatewaytest.CheckStreamHeaders(t, member, config, pod.Namespace)
		gatewaytest.CheckWatchHeaders(t, config, "/api/v1/pods")
	})
}

// runPod creates a pod and waits until it runs.
func runPod(t *testing.T, client kubernetes.Interface) *corev1.Pod {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	testenv.Eventually(t, "there is a service account for pods", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	if _, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "streamed"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "simulated"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var pod *corev1.Pod
	testenv.Eventually(t, "the pod runs", func(ctx context.Context) (_ bool, err error) {
		pod, err = pods.Get(ctx, "streamed", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	return pod
}
