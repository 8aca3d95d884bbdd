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

// onePod requests one CPU.
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

// member is a simulated cluster: running pods use CPUs of nodes.
type member struct {
	model    *simulate.Model
	capacity int
	quota    int            // of pods; 0 is none
	running  map[string]int // by workload
	waiting  map[string][]*corev1.Pod
	serial   int
}

func newMember(nodes, each int) *member {
	m := &member{model: simulate.NewModel(), running: map[string]int{}, waiting: map[string][]*corev1.Pod{}}
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

// run starts a pod of a workload and reports whether there was capacity.
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

// limit sets the quota.
func (m *member) limit(pods int) {
	m.quota, m.capacity = pods, min(m.capacity, pods)
	m.charge()
}

// charge updates the status of the quota.
func (m *member) charge() {
	if m.quota == 0 {
		return
	}
	count := func(n int) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(n), resource.DecimalSI)}
	}
	m.model.SetQuota(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: count(m.quota)}, Status: corev1.ResourceQuotaStatus{Used: count(m.serial)},
	})
}

// start puts a pod on a node with capacity.
func (m *member) start(name string) {
	node := m.roomy()
	if len(m.waiting[name]) == 0 {
		m.create(name)
	}
	p := m.waiting[name][0].DeepCopy()
	m.waiting[name] = m.waiting[name][1:]
	p.Spec.NodeName = node
	m.model.SetPod(p)
	m.running[name]++
}

// create creates a pod, which waits for a node.
func (m *member) create(name string) {
	m.serial++
	controller := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprint(name, m.serial), UID: types.UID(fmt.Sprint(m.serial)),
		OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: name, Controller: &controller}},
	}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
	m.model.SetPod(p)
	m.waiting[name] = append(m.waiting[name], p)
	m.charge()
}

func (m *member) roomy() string {
	for i := 0; ; i++ {
		name := fmt.Sprint("n", i)
		probe, err := simulate.FromTemplate("without-a-quota", &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
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
	pods := podsOf(m.model, l)
	return &Observation{Pods: pods, Quotas: quotasOf(m.model), Classes: observe(m.model, nil), Holders: []string{"a", "b"}}
}

// TestNeverOversold mixes claims, starting pods and observations in random order, with and without a quota. Every reserved pod must be
// able to run, and no capacity may be lost.
func TestNeverOversold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMember(rapid.IntRange(1, 4).Draw(t, "nodes"), rapid.IntRange(1, 5).Draw(t, "each"))
		if quota := rapid.IntRange(0, 12).Draw(t, "quota"); quota > 0 {
			m.limit(quota)
		}
		l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: "member"}}
		Refresh(l, m.observe(l), start)
		decided, pod, now := map[string]int{}, onePod(t), start
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := fmt.Sprint("w", rapid.IntRange(0, 3).Draw(t, "workload"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0: // a scheduler makes a reservation
				more := rapid.IntRange(1, 6).Draw(t, "more")
				base := Open(l, nil, now)
				free := base.Capacity(pod).Total()
				results, _ := grant(l, base, []*request{{claims: []Claim{{Cluster: "member", Workload: workload(name), Total: int32(decided[name] + more), More: int32(more), Pod: pod}}}},
					terms{holder: "a", now: now, expires: now.Add(time.Hour)})
				if (results[0] == nil) != (free >= int64(more)) {
					t.Fatalf("capacity for %d, %d claimed: %v", free, more, results[0])
				}
				if results[0] == nil {
					decided[name] += more
				}
			case 1: // a reserved pod starts
				if m.running[name] < decided[name] && !m.run(name) {
					t.Fatalf("oversold: %d pods of %s are reserved, %d run, and there is no capacity", decided[name], name, m.running[name])
				}
			case 2: // the observer observes the cluster
				Refresh(l, m.observe(l), now)
			case 3: // a reserved pod is created
				if m.running[name]+len(m.waiting[name]) < decided[name] {
					m.create(name)
				}
			}
			sum := 0
			for _, count := range decided {
				sum += count
			}
			if sum > m.capacity {
				t.Fatalf("oversold: %d pods reserved in a cluster for %d", sum, m.capacity)
			}
		}
		// When all pods run and have been observed, no reservation is left and the rest is free.
		left := m.capacity
		for name, count := range decided {
			for m.running[name] < count {
				if !m.run(name) {
					t.Fatalf("oversold: no capacity for %s", name)
				}
			}
			left -= count
		}
		Refresh(l, m.observe(l), now)
		if len(l.Reservations) > 0 {
			t.Fatalf("still reserved: %+v", l.Reservations)
		}
		if free := Open(l, nil, now).Capacity(pod).Total(); free != int64(left) {
			t.Fatalf("capacity for %d, want %d", free, left)
		}
	})
}

func claim(name string, total, more int32, pod *simulate.Pod) Claim {
	return Claim{Cluster: "member", Workload: workload(name), Total: total, More: more, Pod: pod}
}

func promise(t *testing.T, l *cellplanev1alpha1.ClusterLedger, now time.Time, claims ...Claim) []error {
	t.Helper()
	results, _ := grant(l, Open(l, nil, now), []*request{{claims: claims}}, terms{holder: "a", now: now, expires: now.Add(time.Minute)})
	return results
}

func TestPromisesEnd(t *testing.T) {
	m, pod := newMember(2, 4), onePod(t)
	fresh := func() *cellplanev1alpha1.ClusterLedger {
		l := &cellplanev1alpha1.ClusterLedger{}
		Refresh(l, m.observe(l), start)
		if err := promise(t, l, start, claim("web", 6, 6, pod))[0]; err != nil {
			t.Fatal(err)
		}
		return l
	}
	free := func(l *cellplanev1alpha1.ClusterLedger, now time.Time) int64 {
		return Open(l, nil, now).Capacity(pod).Total()
	}

	l := fresh()
	if got := free(l, start); got != 2 {
		t.Errorf("capacity for %d beside a reservation of 6 of 8, want 2", got)
	}
	if got := free(l, start.Add(2*time.Minute)); got != 8 {
		t.Errorf("capacity for %d after the reservation expired, want 8", got)
	}
	if Refresh(l, m.observe(l), start.Add(2*time.Minute)); len(l.Reservations) != 0 {
		t.Errorf("an expired reservation stays: %+v", l.Reservations)
	}

	l = fresh()
	promise(t, l, start, claim("web", 4, -2, nil))
	if got := free(l, start); got != 4 {
		t.Errorf("capacity for %d after a release of 2, want 4", got)
	}
	promise(t, l, start, claim("web", 0, -1<<30, nil))
	if got := free(l, start); got != 8 || len(l.Reservations) != 0 {
		t.Errorf("capacity for %d after all was released, want 8: %+v", got, l.Reservations)
	}

	l = fresh()
	waiting := claim("late", 5, 5, pod)
	waiting.Waits = true
	for range 2 { // nothing is left for the second
		if err := promise(t, l, start, waiting)[0]; err != nil || free(l, start) != 0 || outstanding(&l.Reservations[1]) != 2 {
			t.Errorf("5 of which 3 stay pending: %v %+v", err, l.Reservations)
		}
	}

	l = fresh()
	err := promise(t, l, start, claim("db", 1, 1, pod), claim("cache", 2, 2, pod))[0]
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Asked != 2 || refusal.Left != 1 {
		t.Errorf("2 of 1 left: %v", err)
	}
	if len(l.Reservations) != 1 {
		t.Errorf("a refused request left reservations: %+v", l.Reservations)
	}
}

// TestGrowth reserves capacity on nodes that could be added, and tracks the pods when they are.
func TestGrowth(t *testing.T) {
	m, pod := newMember(1, 2), onePod(t)
	profile := &cellplanev1alpha1.ClusterProfile{}
	profile.Spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{NodeGroups: []cellplanev1alpha1.NodeGroup{{
		Name: "general", MaxNodes: 2, Labels: map[string]string{"pool": "general"}, Allocatable: cpus(4),
	}}}
	l := &cellplanev1alpha1.ClusterLedger{}
	seen := func() *Observation {
		return &Observation{Pods: podsOf(m.model, l), Classes: observe(m.model, profile)}
	}
	Refresh(l, seen(), start)
	if fit := Open(l, nil, start).Capacity(pod); fit.Replicas != 2 || fit.Growth != 8 {
		t.Fatalf("capacity for %d and %d by growth, want 2 and 8", fit.Replicas, fit.Growth)
	}
	if err := promise(t, l, start, claim("web", 8, 8, pod))[0]; err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "general", "zone": "z"}}}
	n.Status.Allocatable = cpus(4)
	m.model.SetNode(n)
	Refresh(l, seen(), start)
	if fit := Open(l, nil, start).Capacity(pod); fit.Total() != 2 {
		t.Errorf("capacity for %d in 10 of which 8 are reserved, want 2: %+v", fit.Total(), l.Reservations)
	}
	one := int32(2)
	profile.Spec.Size = &cellplanev1alpha1.ClusterSize{MaxNodes: &one}
	if Refresh(l, seen(), start); Open(l, nil, start).Capacity(pod).Total() != 0 {
		t.Error("a cluster at its maximum size still grows")
	}
}
