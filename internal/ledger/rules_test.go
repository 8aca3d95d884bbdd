package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func cpus(count int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(count), resource.DecimalSI), corev1.ResourcePods: resource.MustParse("110")}
}

// onePod asks for one processor.
func onePod(t interface{ Fatal(...any) }) *simulate.Pod {
	p, err := simulate.FromTemplate("default", &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func workload(name string) cellplanev1alpha1.WorkloadReference {
	return cellplanev1alpha1.WorkloadReference{Kind: "StatefulSet", Namespace: "default", Name: name}
}

// member is a cluster as it really is: pods that run take up processors of nodes.
type member struct {
	model    *simulate.Model
	capacity int
	running  map[string]int // by workload
	serial   int
}

func newMember(nodes, each int) *member {
	m := &member{model: simulate.NewModel(), running: map[string]int{}}
	var all []*corev1.Node
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Status.Allocatable = cpus(each)
		all = append(all, n)
		m.capacity += each
	}
	m.model.ReplaceNodes(all)
	m.model.ReplacePods(nil)
	return m
}

// run starts a pod of a workload somewhere, and tells whether there was room.
func (m *member) run(name string) bool {
	for _, s := range m.model.Summarize(1000) {
		for _, alike := range s.Nodes {
			if alike.Free.Cpu().Value() > 0 {
				m.start(name)
				return true
			}
		}
	}
	return false
}

// start puts a pod on a node that has room for it.
func (m *member) start(name string) {
	node := m.roomy()
	m.serial++
	controller := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprint(name, m.serial), UID: types.UID(fmt.Sprint(m.serial)),
		OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: name, Controller: &controller}},
	}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	m.model.SetPod(p)
	m.running[name]++
}

func (m *member) roomy() string {
	for i := 0; ; i++ {
		name := fmt.Sprint("n", i)
		probe, err := simulate.FromTemplate("default", &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: name},
			Containers:   []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}},
		}})
		if err != nil {
			panic(err)
		}
		if m.model.Fit(probe).Replicas > 0 {
			return name
		}
	}
}

func (m *member) observe(l *cellplanev1alpha1.ClusterLedger) *Observation {
	bound := boundOf(m.model, l)
	return &Observation{Bound: bound, Classes: observe(m.model, nil), Holders: []string{"a", "b"}}
}

// TestNeverOversold lets claims, pods and observations come in any order. Whatever is promised must be able to run, and
// room that nobody has must not be lost.
func TestNeverOversold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMember(rapid.IntRange(1, 4).Draw(t, "nodes"), rapid.IntRange(1, 5).Draw(t, "each"))
		l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: "member"}}
		Settle(l, m.observe(l), start)
		decided, pod, now := map[string]int{}, onePod(t), start
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := fmt.Sprint("w", rapid.IntRange(0, 3).Draw(t, "workload"))
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0: // a scheduler decides
				more := rapid.IntRange(1, 6).Draw(t, "more")
				base := Open(l, nil, now)
				room := base.Room(pod).Total()
				results, _ := grant(l, base, []*order{{claims: []Claim{{Cluster: "member", Workload: workload(name), Total: int32(decided[name] + more), More: int32(more), Pod: pod}}}},
					terms{holder: "a", now: now, expires: now.Add(time.Hour)})
				if (results[0] == nil) != (room >= int64(more)) {
					t.Fatalf("room for %d, %d claimed: %v", room, more, results[0])
				}
				if results[0] == nil {
					decided[name] += more
				}
			case 1: // a pod that was decided on starts
				if m.running[name] < decided[name] && !m.run(name) {
					t.Fatalf("oversold: %d pods of %s are promised, %d run, and there is no room", decided[name], name, m.running[name])
				}
			case 2: // the keeper looks
				Settle(l, m.observe(l), now)
			}
			sum := 0
			for _, count := range decided {
				sum += count
			}
			if sum > m.capacity {
				t.Fatalf("oversold: %d pods promised in a cluster for %d", sum, m.capacity)
			}
		}
		// When all pods run and have been seen, nothing is promised any more and the rest is free.
		left := m.capacity
		for name, count := range decided {
			for m.running[name] < count {
				if !m.run(name) {
					t.Fatalf("oversold: no room for %s", name)
				}
			}
			left -= count
		}
		Settle(l, m.observe(l), now)
		if len(l.Reservations) > 0 {
			t.Fatalf("still promised: %+v", l.Reservations)
		}
		if room := Open(l, nil, now).Room(pod).Total(); room != int64(left) {
			t.Fatalf("room for %d, want %d", room, left)
		}
	})
}

func claim(name string, total, more int32, pod *simulate.Pod) Claim {
	return Claim{Cluster: "member", Workload: workload(name), Total: total, More: more, Pod: pod}
}

func promise(t *testing.T, l *cellplanev1alpha1.ClusterLedger, now time.Time, claims ...Claim) []error {
	t.Helper()
	results, _ := grant(l, Open(l, nil, now), []*order{{claims: claims}}, terms{holder: "a", now: now, expires: now.Add(time.Minute)})
	return results
}

func TestPromisesEnd(t *testing.T) {
	m, pod := newMember(2, 4), onePod(t)
	fresh := func() *cellplanev1alpha1.ClusterLedger {
		l := &cellplanev1alpha1.ClusterLedger{}
		Settle(l, m.observe(l), start)
		if err := promise(t, l, start, claim("web", 6, 6, pod))[0]; err != nil {
			t.Fatal(err)
		}
		return l
	}
	room := func(l *cellplanev1alpha1.ClusterLedger, now time.Time) int64 {
		return Open(l, nil, now).Room(pod).Total()
	}

	l := fresh()
	if got := room(l, start); got != 2 {
		t.Errorf("room for %d beside a promise of 6 of 8, want 2", got)
	}
	if got := room(l, start.Add(2*time.Minute)); got != 8 {
		t.Errorf("room for %d after the promise has expired, want 8", got)
	}
	if Settle(l, m.observe(l), start.Add(2*time.Minute)); len(l.Reservations) != 0 {
		t.Errorf("what has expired stays: %+v", l.Reservations)
	}

	l = fresh()
	promise(t, l, start, claim("web", 4, -2, nil))
	if got := room(l, start); got != 4 {
		t.Errorf("room for %d when 2 were given back, want 4", got)
	}
	promise(t, l, start, claim("web", 0, -1<<30, nil))
	if got := room(l, start); got != 8 || len(l.Reservations) != 0 {
		t.Errorf("room for %d when all is given back, want 8: %+v", got, l.Reservations)
	}

	l = fresh()
	waiting := claim("late", 5, 5, pod)
	waiting.Waits = true
	for range 2 { // the second finds nothing left at all
		if err := promise(t, l, start, waiting)[0]; err != nil || room(l, start) != 0 || outstanding(&l.Reservations[1]) != 2 {
			t.Errorf("5 of which 3 wait: %v %+v", err, l.Reservations)
		}
	}

	l = fresh()
	err := promise(t, l, start, claim("db", 1, 1, pod), claim("cache", 2, 2, pod))[0]
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Asked != 2 || refusal.Left != 1 {
		t.Errorf("2 of 1 left: %v", err)
	}
	if len(l.Reservations) != 1 {
		t.Errorf("an order that is refused leaves something behind: %+v", l.Reservations)
	}
}

// TestGrowth promises room on nodes that could be added, and follows the pods when they are.
func TestGrowth(t *testing.T) {
	m, pod := newMember(1, 2), onePod(t)
	profile := &cellplanev1alpha1.ClusterProfile{}
	profile.Spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{NodeGroups: []cellplanev1alpha1.NodeGroup{{
		Name: "general", MaxNodes: 2, Labels: map[string]string{"pool": "general"}, Allocatable: cpus(4),
	}}}
	l := &cellplanev1alpha1.ClusterLedger{}
	seen := func() *Observation {
		return &Observation{Bound: boundOf(m.model, l), Classes: observe(m.model, profile)}
	}
	Settle(l, seen(), start)
	if fit := Open(l, nil, start).Room(pod); fit.Replicas != 2 || fit.Growth != 8 {
		t.Fatalf("room for %d and %d by growth, want 2 and 8", fit.Replicas, fit.Growth)
	}
	if err := promise(t, l, start, claim("web", 8, 8, pod))[0]; err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "general", "zone": "z"}}}
	n.Status.Allocatable = cpus(4)
	m.model.SetNode(n)
	Settle(l, seen(), start)
	if fit := Open(l, nil, start).Room(pod); fit.Total() != 2 {
		t.Errorf("room for %d in 10 of which 8 are promised, want 2: %+v", fit.Total(), l.Reservations)
	}
	one := int32(2)
	profile.Spec.Size = &cellplanev1alpha1.ClusterSize{MaxNodes: &one}
	if Settle(l, seen(), start); Open(l, nil, start).Room(pod).Total() != 0 {
		t.Error("a cluster at its largest still grows")
	}
}
