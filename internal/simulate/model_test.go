package simulate

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// TestChangesAddUp applies random changes and compares with a model of the final state.
func TestChangesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, nodes, pods := NewModel(), map[string]*corev1.Node{}, map[types.UID]*corev1.Pod{}
		for range rapid.IntRange(0, 40).Draw(t, "changes") {
			name := fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node"))
			uid := types.UID(fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "pod")))
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				nodes[name] = newNode(name, rapid.IntRange(1, 6).Draw(t, "cpu"), map[string]string{"pool": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pool")})
				m.SetNode(nodes[name])
			case 1:
				delete(nodes, name)
				m.RemoveNode(name)
			case 2:
				p := drawPod(t, "web", 1)
				p.UID, p.Spec.NodeName = uid, rapid.SampledFrom([]string{name, ""}).Draw(t, "where")
				p.Spec.Priority = ptr.To(int32(rapid.IntRange(-1, 1).Draw(t, "priority")))
				pods[uid] = p
				m.SetPod(p)
			case 3:
				delete(pods, uid)
				m.RemovePod(uid)
			}
		}
		fresh := NewModel()
		for _, n := range nodes {
			fresh.SetNode(n)
		}
		for _, p := range pods {
			fresh.SetPod(p)
		}
		if diff := cmp.Diff(fresh.Summarize(1000), m.Summarize(1000)); diff != "" {
			t.Fatalf("(-final state +changes) %s", diff)
		}
		wanted := drawPod(t, "web", 1)
		wanted.Spec.Priority = ptr.To(int32(1))
		p, err := compilePod(wanted)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := fresh.Fit(p), m.Fit(p); a.Replicas != b.Replicas {
			t.Fatalf("capacity for %d, and for %d after changes", a.Replicas, b.Replicas)
		}
		if a, b := fresh.Preemptible(p), m.Preemptible(p); a != b {
			t.Fatalf("%d by preemption, and %d after changes", a, b)
		}
		if len(nodes) == 0 && len(pods) == 0 && len(m.nodeIndex)+len(m.shapes)+len(m.classIndex) > 0 {
			t.Fatalf("left behind: %v %v %v", m.nodeIndex, m.shapes, m.classIndex)
		}
	})
}

func newNode(name string, cpus int, labels map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	for key, value := range labels {
		n.Labels[key] = value
	}
	n.Status.Allocatable = list(cpus, 8)
	return n
}

// spec returns a pod that requests CPUs, modified by a function.
func spec(t *testing.T, cpus int, change func(*corev1.Pod)) *Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}}}}
	if change != nil {
		change(pod)
	}
	p, err := compilePod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFit(t *testing.T) {
	m := NewModel()
	m.SetNode(newNode("n1", 4, map[string]string{"zone": "a"}))
	m.SetNode(newNode("n2", 4, map[string]string{"zone": "b"}))
	gpu := newNode("n3", 4, map[string]string{"zone": "b"})
	gpu.Status.Allocatable["example.com/gpu"] = resource.MustParse("2")
	m.SetNode(gpu)
	cordoned := newNode("n4", 4, nil)
	cordoned.Spec.Unschedulable = true
	m.SetNode(cordoned)
	m.AddNodes(Class{Labels: map[string]string{"zone": "c"}, Allocatable: list(4, 8), Potential: true}, list(4, 8), 3)
	m.SetVolume(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: "x"}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data"}, NodeAffinity: &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"b"}}}}}},
		}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	})
	for _, test := range []struct {
		name             string
		change           func(*corev1.Pod)
		replicas, growth int64
	}{
		{name: "existing and potential nodes", replicas: 6, growth: 6},
		{name: "rare resource", replicas: 2, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}},
		{name: "node by name", replicas: 2, change: func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"}
		}},
		{name: "cordoned node", replicas: 8, growth: 6, change: func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
		}},
		{name: "zone of a volume", replicas: 4, change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}},
		{name: "unknown claim", replicas: 6, growth: 6, change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "other"}}}}
		}},
		{name: "host port", replicas: 3, growth: 3, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fit := m.Fit(spec(t, 2, test.change))
			if fit.Replicas != test.replicas || fit.Growth != test.growth {
				t.Errorf("capacity for %d and %d by growth, want %d and %d", fit.Replicas, fit.Growth, test.replicas, test.growth)
			}
			sum := int64(0)
			for _, c := range fit.Classes {
				sum += c.Replicas
			}
			if sum != fit.Total() {
				t.Errorf("the classes have capacity for %d, in total %d", sum, fit.Total())
			}
		})
	}
}

// TestPriority checks that pods of lower priority use capacity but could be preempted.
func TestPriority(t *testing.T) {
	m := NewModel()
	m.SetNode(newNode("n1", 4, nil))
	for i, priority := range []int32{-5, 0, 100} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}}
		p.Spec.NodeName, p.Spec.Priority = "n1", ptr.To(priority)
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list(1, 0)}}}
		m.SetPod(p)
	}
	for priority, want := range map[int32]int64{-10: 0, -5: 0, 0: 1, 50: 2, 100: 2, 101: 3} {
		p := spec(t, 1, func(p *corev1.Pod) { p.Spec.Priority = ptr.To(priority) })
		if fit := m.Fit(p); fit.Replicas != 1 {
			t.Errorf("priority %d: capacity for %d beside running pods, want 1", priority, fit.Replicas)
		}
		if more := m.Preemptible(p); more != want {
			t.Errorf("priority %d: %d more by preemption, want %d", priority, more, want)
		}
	}
	never := spec(t, 1, func(p *corev1.Pod) {
		p.Spec.Priority, p.Spec.PreemptionPolicy = ptr.To(int32(101)), ptr.To(corev1.PreemptNever)
	})
	if more := m.Preemptible(never); more != 0 {
		t.Errorf("%d by preemption although the pod forbids it", more)
	}
}

// TestTakeLeavesTheRest takes capacity step by step and checks the rest.
func TestTakeLeavesTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewModel()
		class := Class{Name: "c", Allocatable: list(8, 20)}
		total := int64(0)
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			free := rapid.IntRange(0, 8).Draw(t, "free")
			m.AddNodes(class, list(free, 20), 1)
			total += int64(free)
		}
		one, err := compilePod(drawPlain(1))
		if err != nil {
			t.Fatal(err)
		}
		for total > 0 {
			taken := int64(rapid.IntRange(1, int(total)).Draw(t, "taken"))
			before := m.Fit(one).Replicas
			copied := m.Clone()
			copied.Take("c", one.Requests, taken)
			if m.Fit(one).Replicas != before {
				t.Fatal("taking from a copy changed the original")
			}
			m.Take("c", one.Requests, taken)
			if total -= taken; m.Fit(one).Replicas != total || copied.Fit(one).Replicas != total {
				t.Fatalf("%d left, want %d", m.Fit(one).Replicas, total)
			}
		}
		m.Take("c", one.Requests, 1)
		if zero, err := compilePod(drawPlain(0)); err != nil || m.Fit(zero).Replicas != 0 {
			t.Fatalf("overdrawn nodes count as capacity: %v", err)
		}
	})
}

func drawPlain(cpus int) *corev1.Pod {
	p := &corev1.Pod{}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}}}}
	return p
}

// TestSummaryNeverPromisesMore builds a model from a summary: it is exact with enough rows and has less capacity
// otherwise.
func TestSummaryNeverPromisesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewModel()
		for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
			n := newNode(fmt.Sprint(i), 512, map[string]string{"pool": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pool")})
			m.SetNode(n)
			p := drawPlain(rapid.IntRange(0, 512).Draw(t, "used"))
			p.UID, p.Spec.NodeName = types.UID(n.Name), n.Name
			m.SetPod(p)
		}
		rows := rapid.IntRange(1, 20).Draw(t, "rows")
		summary, used, copied := m.Summarize(rows), 0, NewModel()
		for _, s := range summary {
			for _, alike := range s.Nodes {
				copied.AddNodes(s.Class, alike.Free, int(alike.Count))
				used++
			}
		}
		if used > max(rows, len(summary)*5) {
			t.Fatalf("%d rows, want at most %d", used, rows)
		}
		p, err := compilePod(drawPlain(rapid.IntRange(1, 300).Draw(t, "request")))
		if err != nil {
			t.Fatal(err)
		}
		exact, summarized := m.Fit(p).Replicas, copied.Fit(p).Replicas
		if summarized > exact || rows >= 12 && summarized != exact {
			t.Fatalf("the summary has capacity for %d, the nodes for %d", summarized, exact)
		}
	})
}

func TestWorkloadOf(t *testing.T) {
	for _, test := range []struct {
		kind, name, hash string
		want             Workload
	}{
		{"ReplicaSet", "web-5d4f", "5d4f", Workload{"Deployment", "ns", "web"}},
		{"ReplicaSet", "web-5d4f", "", Workload{"ReplicaSet", "ns", "web-5d4f"}},
		{"StatefulSet", "db", "", Workload{"StatefulSet", "ns", "db"}},
		{"", "", "", Workload{"Pod", "ns", "alone"}},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "alone", Labels: map[string]string{"pod-template-hash": test.hash}}}
		if test.kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: test.kind, Name: test.name, Controller: ptr.To(true)}}
		}
		if got := WorkloadOf(p); got != test.want {
			t.Errorf("%s %s: %v, want %v", test.kind, test.name, got, test.want)
		}
		m := NewModel()
		p.UID, p.Spec.NodeName = "1", "n1"
		m.SetPod(p)
		pending := p.DeepCopy()
		pending.UID, pending.Spec.NodeName = "2", ""
		m.SetPod(pending)
		if count := m.CountPods([]Workload{test.want})[test.want]; count != (PodCount{Bound: 1, Waiting: 1}) {
			t.Errorf("%v: %+v, want one pod with a node and one that waits", test.want, count)
		}
	}
}

// TestBytesPerNode bounds the memory use of a model.
func TestBytesPerNode(t *testing.T) {
	const count, most = 20_000, 400
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m := bigModel(count)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if bytes := int64(after.HeapAlloc-before.HeapAlloc) / count; bytes > most {
		t.Errorf("%d bytes per node, want at most %d", bytes, most)
	}
	runtime.KeepAlive(m)
}

// bigModel returns a model with nodes of twelve classes, each with a system pod.
func bigModel(count int) *Model {
	m := NewModel()
	for i := range count {
		n := newNode(fmt.Sprintf("node-%06d.example.internal", i), 64, map[string]string{"zone": fmt.Sprint("z", i%3), "pool": fmt.Sprint("p", i%4)})
		m.SetNode(LeanNode(n))
		at := m.nodeIndex[n.Name]
		m.nodes[at].used.fixed[cpu], m.nodes[at].used.fixed[pods] = int64(i%60_000), int64(i%7)
	}
	return m
}

func BenchmarkFit(b *testing.B) {
	m := bigModel(500_000)
	plain := drawPlain(2)
	plain.Spec.NodeSelector = map[string]string{"pool": "p1"}
	p, err := compilePod(plain)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for b.Loop() {
		m.Fit(p)
	}
}
