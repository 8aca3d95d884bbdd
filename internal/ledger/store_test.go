package ledger

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cable is a connection to the hub that can be cut.
type cable struct {
	cut  atomic.Bool
	next http.RoundTripper
}

func (c *cable) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errors.New("the cable is cut")
	}
	return c.next.RoundTrip(r)
}

func openStore(t *testing.T, holder, cluster string, subscribers ...func(string)) (*Store, *cable) {
	t.Helper()
	way := &cable{}
	config := rest.CopyConfig(testenv.SharedAPIServer(t).RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { way.next = next; return way })
	s, err := NewStore(Options{Hub: config, Holder: holder, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, subscriber := range subscribers {
		s.Subscribe(subscriber)
	}
	background(t, func(ctx context.Context) { s.Run(ctx) })
	eventually(t, "the ledger is known", func() bool { return s.Account(cluster).Known() })
	return s, way
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	testenv.Eventually(t, what, func(context.Context) (bool, error) { return condition(), nil })
}

// background runs a function until the test ends and waits for it.
func background(t *testing.T, run func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); wait.Wait() })
}

func ledgersOf(t *testing.T) rest.Interface {
	t.Helper()
	client, err := ledgerClient(testenv.SharedAPIServer(t).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func deleteAtEnd(t *testing.T, client rest.Interface, name string) {
	t.Helper()
	t.Cleanup(func() { _ = client.Delete().Resource(resourceName).Name(name).Do(context.Background()).Error() })
}

// TestSchedulersAtOnce runs several schedulers with several workers each against a small cluster while pods start
// and the observer observes. Every reserved pod must run, and all capacity must be used.
func TestSchedulersAtOnce(t *testing.T) {
	client, cluster := ledgersOf(t), "tight-"+rand.String(6)
	deleteAtEnd(t, client, cluster)
	m := newMember(12, 5)
	observer, err := NewObserver(testenv.SharedAPIServer(t).RESTConfig(), 0)
	if err != nil {
		t.Fatal(err)
	}
	observer.models[cluster] = m.model
	background(t, func(ctx context.Context) { _ = observer.Run(ctx) })

	var (
		stores    []*Store
		mu        sync.Mutex // guards the member
		sold      atomic.Int32
		conflicts atomic.Int32
		all       sync.WaitGroup
	)
	for _, holder := range []string{"cell-a", "cell-b", "cell-c", "hub"} {
		s, _ := openStore(t, holder, cluster)
		stores = append(stores, s)
	}
	pod := onePod(t)
	for i, s := range stores {
		for worker := range 3 {
			all.Go(func() {
				for n := int32(0); ; n++ {
					name := fmt.Sprintf("w-%d-%d-%d", i, worker, n)
					more := n%3 + 1
					err := s.Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload(name), Total: more, More: more, Pod: pod}})
					var refusal *Refusal
					if errors.As(err, &refusal) {
						conflicts.Add(1)
						if more == 1 {
							return
						}
						continue
					}
					if err != nil {
						t.Errorf("reserving: %v", err)
						return
					}
					sold.Add(more)
					mu.Lock()
					for range more {
						if !m.run(name) {
							t.Errorf("oversold: no capacity for a pod of %s", name)
						}
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	// Capacity that was counted twice for a moment, as reserved and as used, becomes free.
	eventually(t, "all reservations end", func() bool {
		l, err := getLedger(t.Context(), client, cluster)
		return err == nil && len(l.Reservations) == 0
	})
	s := stores[0]
	eventually(t, "the free capacity is known", func() bool {
		return s.Account(cluster).Capacity(pod).Total() == int64(m.capacity)-int64(sold.Load())
	})
	for s.Account(cluster).Capacity(pod).Total() > 0 {
		if err := s.Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload("rest" + rand.String(5)), Total: 1, More: 1, Pod: pod}}); err != nil {
			break
		}
		sold.Add(1)
	}
	if int(sold.Load()) != m.capacity {
		t.Errorf("%d reserved of %d", sold.Load(), m.capacity)
	}
	t.Logf("%d reserved, %d refused", sold.Load(), conflicts.Load())
}

// writeLedger creates a ledger of equal nodes.
func writeLedger(t *testing.T, client rest.Interface, name string, nodes int32, holders ...string) {
	t.Helper()
	l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: name}, Holders: holders, Revision: 1, Classes: []cellplanev1alpha1.LedgerNodeClass{{
		Name: "c", Allocatable: cpus(4), Nodes: []cellplanev1alpha1.LedgerNodes{{Count: nodes, Free: cpus(4)}},
	}}}
	if err := client.Post().Resource(resourceName).Body(l).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	deleteAtEnd(t, client, name)
}

// TestHubUnreachable cuts two schedulers off the hub. Together they do not reserve more than there is, and the hub
// gets the reservations when it is reachable again.
func TestHubUnreachable(t *testing.T) {
	client, cluster := ledgersOf(t), "away-"+rand.String(6)
	writeLedger(t, client, cluster, 5, "a", "b")
	pod, sold := onePod(t), int32(0)
	var ways []*cable
	var stores []*Store
	for _, holder := range []string{"a", "b"} {
		s, way := openStore(t, holder, cluster)
		ways, stores = append(ways, way), append(stores, s)
	}
	if err := stores[0].Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload("before"), Total: 1, More: 1, Pod: pod}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both stores know the reservation", func() bool { return stores[1].Account(cluster).Capacity(pod).Total() == 19 })
	for _, way := range ways {
		way.cut.Store(true)
	}
	for i, s := range stores {
		for n := 0; ; n++ {
			err := s.Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload(fmt.Sprint("w", i, n)), Total: 1, More: 1, Pod: pod}})
			var refusal *Refusal
			if errors.As(err, &refusal) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			sold++
		}
		if s.Away().IsZero() {
			t.Error("the hub counts as reachable")
		}
		if s.Account(cluster).Capacity(pod).Total() != 0 {
			t.Error("there is capacity for a refused claim")
		}
	}
	if sold != 19 {
		t.Errorf("%d reserved in total, want 19", sold)
	}
	for _, way := range ways {
		way.cut.Store(false)
	}
	eventually(t, "the hub has all reservations", func() bool {
		l, err := getLedger(t.Context(), client, cluster)
		return err == nil && allOutstanding(l) == 20
	})
	eventually(t, "the hub is reachable again", func() bool { return stores[0].Away().IsZero() && stores[1].Away().IsZero() })

	// A restarted scheduler finds them.
	again, _ := openStore(t, "a", cluster)
	if free := again.Account(cluster).Capacity(pod).Total(); free != 0 {
		t.Errorf("capacity for %d after a restart, want none", free)
	}
}

// TestReserveAllOrNothing claims capacity in two clusters, one of which has none.
func TestReserveAllOrNothing(t *testing.T) {
	client, full, empty := ledgersOf(t), "full-"+rand.String(6), "empty-"+rand.String(6)
	writeLedger(t, client, full, 1)
	writeLedger(t, client, empty, 3)
	var reported sync.Map
	s, _ := openStore(t, "a", full, func(cluster string) { reported.Store(cluster, true) })
	eventually(t, "the other ledger is known", func() bool { return s.Account(empty).Known() })
	pod := onePod(t)
	err := s.Reserve(t.Context(), []Claim{
		{Cluster: full, Workload: workload("web"), Total: 5, More: 5, Pod: pod}, {Cluster: empty, Workload: workload("web"), Total: 2, More: 2, Pod: pod},
	})
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Cluster != full || refusal.Left != 4 {
		t.Fatalf("5 of 4: %v", err)
	}
	eventually(t, "the reservation in the first cluster is released", func() bool {
		l, err := getLedger(t.Context(), client, empty)
		return err == nil && len(l.Reservations) == 0 && s.Account(empty).Capacity(pod).Total() == 12
	})
	free, growth := s.Estimators(nil)
	spec := &workv1alpha2.ResourceBindingSpec{ReplicaRequirements: &workv1alpha2.ReplicaRequirements{ResourceRequest: pod.Requests}}
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: empty}}
	if free(cluster, spec) != 12 || growth(cluster, spec) != 0 {
		t.Errorf("estimated %d with %d by growth, want 12 and 0", free(cluster, spec), growth(cluster, spec))
	}
	cluster.Name = "nobody"
	if got := free(cluster, spec); got != -1 {
		t.Errorf("estimated %d for a cluster without a ledger", got)
	}
	if err := s.Reserve(t.Context(), []Claim{{Cluster: empty, Workload: workload("web"), Total: 2, More: 2, Pod: pod}}); err != nil {
		t.Fatal(err)
	}
	reported.Clear()
	s.Release(workload("web"), "")
	eventually(t, "the release is reported", func() bool {
		_, ok := reported.Load(empty)
		return ok && s.Account(empty).Capacity(pod).Total() == 12
	})
}

// TestReservationsSurviveRestarts replaces a store that made a reservation: the new one knows it and can release
// it.
func TestReservationsSurviveRestarts(t *testing.T) {
	client, cluster := ledgersOf(t), "kept-"+rand.String(6)
	writeLedger(t, client, cluster, 1)
	pod := onePod(t)
	before, _ := openStore(t, "a", cluster)
	if err := before.Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload("web"), Total: 3, More: 3, Pod: pod}}); err != nil {
		t.Fatal(err)
	}
	after, _ := openStore(t, "a", cluster)
	if free := after.Account(cluster).Capacity(pod).Total(); free != 1 {
		t.Errorf("capacity for %d after a restart, want 1", free)
	}
	var refusal *Refusal
	if err := after.Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload("other"), Total: 2, More: 2, Pod: pod}}); !errors.As(err, &refusal) {
		t.Errorf("2 of 1: %v", err)
	}
	after.Release(workload("web"), "")
	eventually(t, "the reservation from before the restart is released", func() bool { return after.Account(cluster).Capacity(pod).Total() == 4 })
}
