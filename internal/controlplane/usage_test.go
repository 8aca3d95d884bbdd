package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// testUsage checks that simulated nodes report what pods use, as metrics-server reads it: the CPU seconds of a pod grow as its annotation says.
func testUsage(t *testing.T, client kubernetes.Interface) {
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) < 2 {
		t.Fatalf("there are %d pods: %v", len(pods.Items), err)
	}
	busy, idle := &pods.Items[0], &pods.Items[1]
	patch := []byte(`{"metadata":{"annotations":{"kwok.x-k8s.io/usage-cpu":"4","kwok.x-k8s.io/usage-memory":"256Mi"}}}`)
	if _, err := client.CoreV1().Pods("default").Patch(t.Context(), busy.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	read := func(ctx context.Context, node, metric, pod string) (value float64, err error) {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		text, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").
			Suffix(n.Annotations["metrics.k8s.io/resource-metrics-path"]).DoRaw(ctx)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, metric+"{") && strings.Contains(line, fmt.Sprintf("pod=%q", pod)) && strings.Contains(line, `container="web"`) {
				_, err := fmt.Sscanf(line[strings.LastIndex(line, "}")+1:], "%g", &value)
				return value, err
			}
		}
		return 0, fmt.Errorf("%s has no %s of pod %s", node, metric, pod)
	}
	eventually(t, "the node reports the memory of the busy pod", func(ctx context.Context) (bool, error) {
		memory, err := read(ctx, busy.Spec.NodeName, "container_memory_working_set_bytes", busy.Name)
		return memory == 256<<20, err
	})
	const cpu = "container_cpu_usage_seconds_total"
	first, err := read(t.Context(), busy.Spec.NodeName, cpu, busy.Name)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "the busy pod has used two CPU seconds more", func(ctx context.Context) (bool, error) {
		now, err := read(ctx, busy.Spec.NodeName, cpu, busy.Name)
		if most := 5 * time.Since(began).Seconds(); now-first > most+1 {
			t.Fatalf("it has used %.1f CPU seconds in %.1f s", now-first, time.Since(began).Seconds())
		}
		return now-first >= 2, err
	})
	if used, err := read(t.Context(), idle.Spec.NodeName, cpu, idle.Name); err != nil || used > 2 {
		t.Errorf("the idle pod has used %.1f CPU seconds: %v", used, err)
	}
}
