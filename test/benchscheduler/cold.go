package main

import (
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/simulate"
)

// coldFigures are the results of uncached simulations.
type coldFigures struct {
	plain, spread time.Duration
	bytesPerNode  int64
}

// perCluster is the number of nodes per cluster in the cold simulation.
const perCluster = 1000

// simulateCold adds nodes and pods one by one, as watches do, and fits one pod into all clusters.
func simulateCold(nodes int) (coldFigures, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var models []*simulate.Model
	for first := 0; first < nodes; first += perCluster {
		models = append(models, feed(first, min(perCluster, nodes-first)))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	var f coldFigures
	f.bytesPerNode = int64(after.HeapAlloc-before.HeapAlloc) / int64(nodes)

	template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	template.Spec.NodeSelector = map[string]string{"pool": "general"}
	template.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: size(2)}}}
	delete(template.Spec.Containers[0].Resources.Requests, corev1.ResourcePods)
	var err error
	if f.plain, err = fitAll(models, template); err != nil {
		return f, err
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{MaxSkew: 5, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector},
		{MaxSkew: 2, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector},
	}
	f.spread, err = fitAll(models, template)
	runtime.KeepAlive(models)
	return f, err
}

func fitAll(models []*simulate.Model, template *corev1.PodTemplateSpec) (time.Duration, error) {
	pod, err := simulate.FromTemplate("default", template)
	if err != nil {
		return 0, err
	}
	began, total := time.Now(), int64(0)
	for _, m := range models {
		total += m.Fit(pod).Replicas
	}
	if total == 0 {
		return 0, fmt.Errorf("the pod fits no cluster")
	}
	return time.Since(began), nil
}

// feed adds nodes in three zones and two pools, each with some pods.
func feed(first, count int) *simulate.Model {
	m := simulate.NewModel()
	for i := first; i < first+count; i++ {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%07d.example.internal", i), Labels: map[string]string{
			"zone": fmt.Sprint("z", i%3), "pool": []string{"general", "special"}[i%2], corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}}}
		n.Labels[corev1.LabelHostname] = n.Name
		n.Status.Allocatable = size(64)
		m.SetNode(n)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: n.Name, UID: types.UID(n.Name), Labels: map[string]string{"app": "agent"}}}
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: new(bool)}}
		*pod.OwnerReferences[0].Controller = true
		pod.Spec.NodeName = n.Name
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(int64(1+i%50), resource.DecimalSI),
		}}}}
		m.SetPod(pod)
	}
	return m
}
