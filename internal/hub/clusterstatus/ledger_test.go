package clusterstatus

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/grade"
)

func testNode(name string, cores int64, ready bool) *corev1.Node {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(cores, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(cores<<32, resource.BinarySI),
			corev1.ResourcePods:   resource.MustParse("110"),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
	}}
}

func testPod(uid, node, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{
		NodeName:   node,
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}},
	}}
}

func TestSummary(t *testing.T) {
	notified := 0
	l := newLedger(func() { notified++ })
	l.replaceNodes([]*corev1.Node{testNode("a", 4, true), testNode("b", 16, true), testNode("c", 16, false)})
	if l.synced() {
		t.Fatal("the ledger is synced before pods were listed")
	}
	heavy := testPod("4", "b", "1500m")
	// The init container requests more than all others, so it counts; overhead is added.
	heavy.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}}}}
	heavy.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	l.replacePods([]*corev1.Pod{testPod("1", "a", "500m"), testPod("2", "a", "500m"), testPod("3", "", "2"), heavy, testPod("5", "lost", "1")})
	if !l.synced() || notified != 1 {
		t.Fatalf("synced: %v, notified %d times", l.synced(), notified)
	}
	cluster := &clusterv1alpha1.Cluster{Spec: clusterv1alpha1.ClusterSpec{ResourceModels: grade.Default()}}
	l.summarize(cluster)
	if *cluster.Status.NodeSummary != (clusterv1alpha1.NodeSummary{TotalNum: 3, ReadyNum: 2}) {
		t.Errorf("the nodes are %+v", cluster.Status.NodeSummary)
	}
	want := clusterv1alpha1.ResourceSummary{
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("36"), "memory": resource.MustParse("144Gi"), "pods": resource.MustParse("330")},
		Allocating:  corev1.ResourceList{"cpu": resource.MustParse("2"), "pods": resource.MustParse("1")},
		Allocated:   corev1.ResourceList{"cpu": resource.MustParse("11500m"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("4")},
	}
	for i := range 9 {
		want.AllocatableModelings = append(want.AllocatableModelings, grade.Compile(grade.Default()).Modelings()[i])
	}
	// Free capacity: a has 3 cores (grade 2), b 6.5 of 16 (grade 3) and c all 16, but 64Gi of memory (grade 4).
	want.AllocatableModelings[2].Count, want.AllocatableModelings[3].Count, want.AllocatableModelings[4].Count = 1, 1, 1
	// a has 16Gi, which is grade 2 as well.
	if !equality.Semantic.DeepEqual(*cluster.Status.ResourceSummary, want) {
		t.Errorf("got  %+v\nwant %+v", cluster.Status.ResourceSummary, want)
	}
}

func TestLeanPodsWeighTheSame(t *testing.T) {
	p := testPod("1", "a", "1")
	p.Spec.InitContainers = []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}}},
		{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}},
	}
	p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	sum := func(p *corev1.Pod) string {
		l := newLedger(func() {})
		l.putPod(p)
		return fmt.Sprint(l.nodes["a"].used)
	}
	if lean := leanPod(p); sum(lean) != sum(p) || lean.Spec.InitContainers != nil {
		t.Errorf("the lean pod uses %s, the full one %s", sum(lean), sum(p))
	}
}

// After any sequence of changes the sums are those of a new ledger with the same objects.
func TestLedgerForgetsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		l := newLedger(func() {})
		nodes, pods := map[string]*corev1.Node{}, map[string]*corev1.Pod{}
		drawPod := func(t *rapid.T) *corev1.Pod {
			return testPod(rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "uid"), rapid.SampledFrom(append(names, "")).Draw(t, "node"), rapid.SampledFrom([]string{"1", "250m", "0"}).Draw(t, "cpu"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"put node": func(t *rapid.T) {
				n := testNode(rapid.SampledFrom(names).Draw(t, "name"), rapid.Int64Range(0, 64).Draw(t, "cores"), rapid.Bool().Draw(t, "ready"))
				nodes[n.Name] = n
				l.putNode(n)
			},
			"drop node": func(t *rapid.T) {
				name := rapid.SampledFrom(names).Draw(t, "name")
				delete(nodes, name)
				l.dropNode(name)
			},
			"put pod": func(t *rapid.T) {
				p := drawPod(t)
				pods[string(p.UID)] = p
				l.putPod(p)
			},
			"drop pod": func(t *rapid.T) {
				p := drawPod(t)
				delete(pods, string(p.UID))
				l.dropPod(p)
			},
			"relist": func(*rapid.T) {
				var allNodes []*corev1.Node
				for _, n := range nodes {
					allNodes = append(allNodes, n)
				}
				var allPods []*corev1.Pod
				for _, p := range pods {
					allPods = append(allPods, p)
				}
				l.replaceNodes(allNodes)
				l.replacePods(allPods)
			},
			"": func(t *rapid.T) {
				fresh := newLedger(func() {})
				for _, n := range nodes {
					fresh.putNode(n)
				}
				for _, p := range pods {
					fresh.putPod(p)
				}
				got, want := summaryOf(l), summaryOf(fresh)
				if !equality.Semantic.DeepEqual(got, want) {
					t.Fatalf("got  %+v\nwant %+v", got, want)
				}
				if len(l.nodes) != len(fresh.nodes) || len(l.pods) != len(fresh.pods) {
					t.Fatalf("%d nodes and %d pods are kept, want %d and %d", len(l.nodes), len(l.pods), len(fresh.nodes), len(fresh.pods))
				}
			},
		})
	})
}

func summaryOf(l *ledger) clusterv1alpha1.ClusterStatus {
	cluster := &clusterv1alpha1.Cluster{Spec: clusterv1alpha1.ClusterSpec{ResourceModels: grade.Default()}}
	l.summarize(cluster)
	return cluster.Status
}
