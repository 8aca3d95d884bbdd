// Package node tests Cellplane on a real node: pods with the images that are shipped, as the chart installs them.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/cli"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
	"github.com/cellplane/cellplane/internal/testenv/realnode"
)

// programEnv makes the test binary run cellplane instead of its tests.
const programEnv = "CELLPLANE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	kubectltest.Run()
	if os.Getenv(programEnv) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	realnode.Main(m, buildImages)
}

// startsWithin bounds the start of the node.
const startsWithin = 10 * time.Minute

var started = sync.OnceValues(func() (*realnode.Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startsWithin)
	defer cancel()
	return realnode.Start(ctx)
})

// startNode returns the node of all tests.
func startNode(t *testing.T) *realnode.Node {
	t.Helper()
	node, err := started()
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// kubectl returns kubectl for a client configuration whose credentials are files.
func kubectl(t *testing.T, config *rest.Config) kubectltest.Kubectl {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"test": config}, "test"), file); err != nil {
		t.Fatal(err)
	}
	return kubectltest.Kubectl(file)
}

// namespace creates a namespace in which only restricted pods are allowed, waits until it can have pods, and deletes it at the end.
func namespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	testenv.Eventually(t, "the namespace has a service account", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// ready waits until pods are ready. A failure tells what the pods have logged.
func ready(t *testing.T, client kubernetes.Interface, namespace string, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(describe(client, namespace))
		}
	})
	testenv.Eventually(t, "the pods are ready", func(ctx context.Context) (bool, error) {
		for _, name := range names {
			pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if !isReady(pod) {
				return false, errors.New(state(pod))
			}
		}
		return true, nil
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// state says in a line how a pod is.
func state(pod *corev1.Pod) string {
	text := fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
	for _, container := range pod.Status.ContainerStatuses {
		text += fmt.Sprintf(", %s restarted %d times", container.Name, container.RestartCount)
		if waiting := container.State.Waiting; waiting != nil {
			text += fmt.Sprintf(", waits: %s %s", waiting.Reason, waiting.Message)
		}
		if ended := container.LastTerminationState.Terminated; ended != nil {
			text += fmt.Sprintf(", ended with %d %s %s", ended.ExitCode, ended.Reason, ended.Message)
		}
	}
	return text
}

// describe returns the states and the last logs of the pods of a namespace that are not ready, and its events.
func describe(client kubernetes.Interface, namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var text strings.Builder
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	lines := int64(15)
	for i := range pods.Items {
		pod := &pods.Items[i]
		fmt.Fprintln(&text, state(pod))
		if isReady(pod) || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		for _, previous := range []bool{true, false} {
			log, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines, Previous: previous}).DoRaw(ctx)
			if err == nil && len(log) > 0 {
				fmt.Fprintf(&text, "  log (previous: %v):\n%s\n", previous, log)
			}
		}
	}
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return text.String() + err.Error()
	}
	for i := range events.Items {
		event := &events.Items[i]
		fmt.Fprintf(&text, "%s %s: %s %s (%d)\n", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message, event.Count)
	}
	return text.String()
}
