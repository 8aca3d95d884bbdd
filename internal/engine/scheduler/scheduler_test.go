package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/testenv"
)

// unreachable is the address of a control plane that no test contacts.
var unreachable = &rest.Config{Host: "https://127.0.0.1:1"}

// newCell returns a cell of which only the cache is used.
func newCell(t *testing.T) *cell.Cell {
	t.Helper()
	c, err := cell.New(unreachable, cell.Options{Name: "cell-a"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func schedulingProfile(name string, spec cellplanev1alpha1.SchedulingProfileSpec) *cellplanev1alpha1.SchedulingProfile {
	return &cellplanev1alpha1.SchedulingProfile{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}, Spec: spec}
}

// TestProfileOf finds the profile of a binding by annotation, then by scheduler name; in the cell, then in the
// configuration.
func TestProfileOf(t *testing.T) {
	withPending := cellplanev1alpha1.SchedulingProfileSpec{Clusters: &cellplanev1alpha1.ClusterChoice{GatherPending: true}}
	drains := cellplanev1alpha1.SchedulingProfileSpec{Sites: &cellplanev1alpha1.SitePreferences{Drain: &cellplanev1alpha1.Drain{Sites: []string{"old"}}}}
	c := newCell(t)
	s := New(c, nil, Options{Profiles: []*cellplanev1alpha1.SchedulingProfile{schedulingProfile("both", drains), schedulingProfile("in-file", drains)}})
	c.Profiles.Set(schedulingProfile("both", withPending))
	c.Profiles.Set(schedulingProfile("in-cell", withPending))
	for _, test := range []struct {
		annotation, scheduler string
		responsible           bool
		want                  *cellplanev1alpha1.SchedulingProfileSpec
		fails                 bool
	}{
		{responsible: true},
		{scheduler: Name, responsible: true},
		{scheduler: "somebody-else"},
		{scheduler: "in-cell", responsible: true, want: &withPending},
		{scheduler: "in-file", responsible: true, want: &drains},
		{scheduler: "both", responsible: true, want: &withPending},
		{annotation: "in-file", responsible: true, want: &drains},
		{annotation: "in-file", scheduler: "in-cell", responsible: true, want: &drains},
		{annotation: "missing", responsible: true, fails: true},
	} {
		t.Run(fmt.Sprintf("annotation %q, scheduler %q", test.annotation, test.scheduler), func(t *testing.T) {
			b := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{SchedulerName: test.scheduler, Placement: &policyv1alpha1.Placement{}}}
			if test.annotation != "" {
				b.Annotations = map[string]string{names.SchedulingProfileAnnotation: test.annotation}
			}
			if got := s.Responsible(b); got != test.responsible {
				t.Fatalf("Responsible() = %t", got)
			}
			if !test.responsible {
				return
			}
			got, failure := s.profile(b)
			if (failure != nil) != test.fails {
				t.Fatalf("unexpected failure %v", failure)
			}
			switch {
			case test.want == nil && got != nil, test.want != nil && (got == nil || (got.Clusters == nil) != (test.want.Clusters == nil)):
				t.Errorf("profile = %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestWaits checks where replicas may stay pending until the cluster grows: only with a profile that allows it and
// in a cluster that can grow.
func TestWaits(t *testing.T) {
	c := newCell(t)
	s := New(c, nil, Options{})
	c.Profiles.Set(schedulingProfile("gathers", cellplanev1alpha1.SchedulingProfileSpec{Clusters: &cellplanev1alpha1.ClusterChoice{GatherPending: true}}))
	c.Profiles.Set(schedulingProfile("scatters", cellplanev1alpha1.SchedulingProfileSpec{}))
	fixed := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: "fixed", ResourceVersion: "1"}}
	elastic := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: "elastic", ResourceVersion: "1"}}
	elastic.Spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{}
	c.ClusterProfiles.Set(fixed)
	c.ClusterProfiles.Set(elastic)
	p := &reservations{cell: c, profiles: &s.profiles}
	for _, test := range []struct {
		annotation, scheduler, cluster string
		want                           bool
	}{
		{cluster: "elastic"},
		{annotation: "gathers", cluster: "elastic", want: true},
		{scheduler: "gathers", cluster: "elastic", want: true},
		{annotation: "gathers", cluster: "fixed"},
		{annotation: "gathers", cluster: "without-profile"},
		{annotation: "scatters", cluster: "elastic"},
		{annotation: "missing", cluster: "elastic"},
		{annotation: "scatters", scheduler: "gathers", cluster: "elastic"},
	} {
		b := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{SchedulerName: test.scheduler}}
		if test.annotation != "" {
			b.Annotations = map[string]string{names.SchedulingProfileAnnotation: test.annotation}
		}
		if got := p.waits(b, test.cluster); got != test.want {
			t.Errorf("annotation %q, scheduler %q, cluster %s: waits() = %t", test.annotation, test.scheduler, test.cluster, got)
		}
	}
}

// TestReadyReplicas counts at most the placed replicas of each cluster as ready: after a drain step the removed
// replicas are still reported for a while.
func TestReadyReplicas(t *testing.T) {
	b := &workv1alpha2.ResourceBinding{}
	b.Spec.Clusters = []workv1alpha2.TargetCluster{{Name: "old", Replicas: 6}, {Name: "new", Replicas: 2}, {Name: "silent", Replicas: 3}}
	for cluster, status := range map[string]string{"old": `{"readyReplicas":8}`, "new": `{"readyReplicas":1}`, "left": `{"readyReplicas":5}`, "silent": `"?"`} {
		b.Status.AggregatedStatus = append(b.Status.AggregatedStatus, workv1alpha2.AggregatedStatusItem{ClusterName: cluster, Status: &runtime.RawExtension{Raw: []byte(status)}})
	}
	if got := readyReplicas(b); got != 7 {
		t.Errorf("%d replicas are ready, want 6 and 1", got)
	}
}

// newWaiting returns a scheduler with unschedulable bindings and clusters with known ledgers.
func newWaiting(t *testing.T, bindings int) (s *Scheduler, store *ledger.Store, woken func() int64) {
	t.Helper()
	c := newCell(t)
	store, err := ledger.NewStore(ledger.Options{Hub: unreachable, Holder: "cell-a"})
	if err != nil {
		t.Fatal(err)
	}
	s = New(c, nil, Options{Ledger: store})
	for _, name := range []string{"a", "b"} {
		c.Clusters.Set(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}})
		store.Set(fullLedger(name, 0, "1"))
	}
	for i := range bindings {
		b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("b", i), ResourceVersion: "1"}}
		b.Spec.Placement = &policyv1alpha1.Placement{ClusterAffinity: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}}
		b.Spec.Replicas = 1
		b.Spec.ReplicaRequirements = &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
		c.Bindings("ns").Set(b)
		s.record(b, &decision{placement: `{"clusterAffinity":{"clusterNames":["a"]}}`, Outcome: Outcome{Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}}})
	}
	var count atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.queue.Run(ctx, 4, func(context.Context, cell.Key) error { count.Add(1); return nil })
	}()
	t.Cleanup(func() { cancel(); <-done })
	// Skip the events of the bindings' creation.
	testenv.Eventually(t, "the queue is empty", func(context.Context) (bool, error) { return count.Load() >= int64(bindings) && s.queue.Len() == 0, nil })
	count.Store(0)
	return s, store, count.Load
}

// fullLedger returns the ledger of a cluster with one node and the given number of free CPUs.
func fullLedger(cluster string, left int64, version string) *cellplanev1alpha1.ClusterLedger {
	size := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(64, resource.DecimalSI), corev1.ResourcePods: resource.MustParse("110")}
	free := size.DeepCopy()
	free[corev1.ResourceCPU] = *resource.NewQuantity(left, resource.DecimalSI)
	l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: cluster, UID: "u", ResourceVersion: version}, Classes: []cellplanev1alpha1.LedgerNodeClass{{
		Name: "n", Allocatable: size, Nodes: []cellplanev1alpha1.LedgerNodes{{Count: 1, Free: free}},
	}}}
	_, _ = fmt.Sscan(version, &l.Revision)
	return l
}

// awaitWakeUps waits until no wake-up of waiting bindings is scheduled and the queue is empty.
func awaitWakeUps(t *testing.T, s *Scheduler) {
	t.Helper()
	testenv.Eventually(t, "all wake-ups are done", func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.wakePending && s.queue.Len() == 0, nil
	})
}

// TestCapacityFreedWakes retries waiting bindings only if an eligible cluster has capacity for them, and once for
// many releases at the same time.
func TestCapacityFreedWakes(t *testing.T) {
	const bindings, pieces = 200, 500
	s, store, woken := newWaiting(t, bindings)
	for i := range pieces {
		store.Set(fullLedger("a", 0, fmt.Sprint(10+i)))  // changed, but without free capacity
		store.Set(fullLedger("b", 60, fmt.Sprint(10+i))) // free capacity, but not eligible
	}
	awaitWakeUps(t, s)
	if woken() != 0 {
		t.Errorf("%d bindings were retried although no eligible cluster has capacity", woken())
	}
	began := time.Now()
	for i := range pieces {
		store.Set(fullLedger("a", 1, fmt.Sprint(1000+i)))
	}
	testenv.Eventually(t, "all bindings are retried", func(context.Context) (bool, error) { return woken() >= bindings, fmt.Errorf("%d are retried", woken()) })
	awaitWakeUps(t, s)
	// The debounce delay is at least 100 ms with this many bindings.
	if most := int64(bindings) * (int64(time.Since(began)/(bindings*debouncePerBinding)) + 1); woken() > most {
		t.Errorf("%d bindings were retried %d times for %d releases, want at most %d", bindings, woken(), pieces, most)
	}
}

// TestCapacityFreedDuringDecision retries a binding that was refused while capacity was being freed: it was not in
// the waiting set when the release was reported.
func TestCapacityFreedDuringDecision(t *testing.T) {
	s, store, woken := newWaiting(t, 1)
	store.Set(fullLedger("a", 1, "5"))
	testenv.Eventually(t, "the binding is retried", func(context.Context) (bool, error) { return woken() > 0, nil })
	awaitWakeUps(t, s)
	before := woken()
	b := s.cell.Binding(cell.Key{Namespace: "ns", Name: "b0"})
	late := &decision{placement: `{"clusterAffinity":{"clusterNames":["a"]}}`, Outcome: Outcome{Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}, input: 1}}
	s.record(b, late) // decided before the release
	testenv.Eventually(t, "the binding is retried again", func(context.Context) (bool, error) { return woken() > before, nil })
}

// TestWaitingUnderOnePlacement checks that a binding waits under one placement only.
func TestWaitingUnderOnePlacement(t *testing.T) {
	s := New(newCell(t), nil, Options{})
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
	refused := func(placement string) *decision {
		return &decision{placement: placement, Outcome: Outcome{Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}}}
	}
	s.record(b, refused("{}"))
	s.record(b, refused(`{"clusterTolerations":[]}`))
	if len(s.waiting) != 1 || len(s.Refused(names.ReasonUnschedulable)) != 1 {
		t.Errorf("the binding waits under %v", s.waiting)
	}
	s.record(b, &decision{placement: "{}", made: true})
	if len(s.waiting) != 0 || len(s.waitingUnder) != 0 {
		t.Errorf("a scheduled binding waits under %v", s.waiting)
	}
}

// TestConfirmedDecision refreshes the time of the last decision when the clusters are confirmed for a changed binding, but not for changes of clusters
// alone: those would cost a write for every binding.
func TestConfirmedDecision(t *testing.T) {
	s := New(newCell(t), nil, Options{})
	now := time.Unix(1000, 0)
	s.now = func() time.Time { return now }
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", Generation: 1}}
	at := func(what string, d decision, want int64) {
		t.Helper()
		s.record(b, &d)
		if got, _ := s.Last(cell.Key{Namespace: "ns", Name: "b"}); got.At.Unix() != want {
			t.Errorf("%s: the time is %d, want %d", what, got.At.Unix(), want)
		}
	}
	at("decided", decision{made: true, Outcome: Outcome{At: now}}, 1000)
	now = time.Unix(2000, 0)
	at("clusters have changed", decision{made: true}, 1000)
	b.Generation = 2
	at("no decision was due", decision{}, 1000)
	b.Generation = 3
	at("confirmed", decision{made: true}, 2000)
	now = time.Unix(3000, 0)
	b.Generation = 4
	at("failed", decision{Outcome: Outcome{Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}}}, 2000)

	restarted := New(newCell(t), nil, Options{})
	restarted.now = s.now
	b.Status.SchedulerObservedGeneration = 4
	restarted.record(b, &decision{made: true})
	if got, _ := restarted.Last(cell.Key{Namespace: "ns", Name: "b"}); !got.At.IsZero() {
		t.Errorf("after a restart the time is %v", got.At)
	}
}

// TestGenerationIsReported tells those who report the generation when it is recorded, for they may have looked at the binding before. It does not do so for what the status says
// already: at the start of an engine, that is every binding.
func TestGenerationIsReported(t *testing.T) {
	told := 0
	s := New(newCell(t), nil, Options{Changed: func(cell.Key) { told++ }})
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
	record := func(what string, generation, observed int64, want int) {
		t.Helper()
		b.Generation, b.Status.SchedulerObservedGeneration = generation, observed
		told = 0
		s.record(b, &decision{})
		if told != want {
			t.Errorf("%s: told %d times, want %d", what, told, want)
		}
	}
	record("the first decision of a new engine", 3, 3, 0)
	record("a change without a new decision", 4, 3, 1)
	record("the same again", 4, 3, 0)
	record("the status says so", 4, 4, 0)
	record("it was reported before it was recorded", 5, 5, 0)
	s.forget(cell.Key{Namespace: "ns", Name: "b"})
	record("a new binding", 1, 0, 1)
	record("an earlier generation", 0, 0, 0)
}

// TestPriorityOrder schedules bindings in the order of their priority: those queued before the workers start and
// those woken together.
func TestPriorityOrder(t *testing.T) {
	const bindings = 100
	c := newCell(t)
	store, err := ledger.NewStore(ledger.Options{Hub: unreachable, Holder: "cell-a"})
	if err != nil {
		t.Fatal(err)
	}
	s := New(c, nil, Options{Ledger: store})
	c.Clusters.Set(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}})
	store.Set(fullLedger("a", 0, "1"))
	awaitWakeUps(t, s) // the ledger's, which would queue the bindings once more
	for i := range bindings {
		b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("b", i), ResourceVersion: "1"}}
		b.Spec.Placement = &policyv1alpha1.Placement{}
		b.Spec.SchedulePriority = &workv1alpha2.SchedulePriority{Priority: int32(i * 37 % bindings)}
		c.Bindings("ns").Set(b)
		s.record(b, &decision{placement: `{}`, Outcome: Outcome{Failure: &schedule.Failure{Reason: names.ReasonUnschedulable}}})
	}
	order := make(chan int, 10*bindings)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.queue.Run(ctx, 1, func(_ context.Context, key cell.Key) error { order <- s.priority(key); return nil })
	}()
	t.Cleanup(func() { cancel(); <-done })
	expect := func(when string) {
		t.Helper()
		for want := bindings - 1; want >= 0; want-- {
			select {
			case got := <-order:
				if got != want {
					t.Fatalf("%s: a binding of priority %d was scheduled before one of %d", when, got, want)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: the binding of priority %d was not scheduled", when, want)
			}
		}
	}
	expect("after start")
	for version := range 10 {
		store.Set(fullLedger("a", 60, fmt.Sprint(2+version)))
		expect("after capacity was freed")
	}
	c.Clusters.Set(&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "2", Labels: map[string]string{"new": "label"}}})
	expect("after a cluster change")
}
