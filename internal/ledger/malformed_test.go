package ledger

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/cellplane/cellplane/internal/testenv"
)

// TestMalformedLedger writes invalid content into one of two ledgers. Both can still be read and reserved in, and
// the observer repairs the broken one.
func TestMalformedLedger(t *testing.T) {
	client := ledgersOf(t)
	broken, sound := "broken-"+rand.String(6), "sound-"+rand.String(6)
	observer, err := NewObserver(testenv.SharedAPIServer(t).RESTConfig(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{broken, sound} {
		deleteAtEnd(t, client, cluster)
		observer.models[cluster] = newMember(4, 5).model
	}
	ctx, cancel := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() { _ = observer.Run(ctx) })
	before, _ := openStore(t, "cell-a", broken)
	eventually(t, "the other ledger is known", func() bool { return before.Account(sound).Known() })
	cancel()
	keeping.Wait()

	nonsense := `{"reservations":[{"total":"many"},{"holder":"cell-b","workload":{"kind":"Deployment","name":"web"},"total":-5,"pods":[{"class":"x","count":-5}],"expires":"2099-01-01T00:00:00Z"}]}`
	if err := client.Patch(types.MergePatchType).Resource(resourceName).Name(broken).Body([]byte(nonsense)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	// One store has been watching all the time, the other starts now.
	after, _ := openStore(t, "cell-b", broken)
	pod := onePod(t)
	for i, s := range []*Store{before, after} {
		for _, cluster := range []string{broken, sound} {
			eventually(t, "the capacity is known", func() bool { return s.Account(cluster).Capacity(pod).Total() == 20-int64(i) })
			if err := s.Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload(s.options.Holder), Total: 1, More: 1, Pod: pod}}); err != nil {
				t.Errorf("reserving in %s: %v", cluster, err)
			}
		}
	}
	l, err := getLedger(t.Context(), client, broken)
	if err != nil {
		t.Fatal(err)
	}
	if faults := dropInvalid(l); len(faults) > 0 || len(l.Reservations) != 2 {
		t.Errorf("invalid entries were written again with a reservation: %v, %+v", faults, l.Reservations)
	}

	nonsense = `{"revision":1000,"reservations":[{"total":"many"}],"classes":[{"name":"x","nodes":["very many"]}]}`
	if err := client.Patch(types.MergePatchType).Resource(resourceName).Name(broken).Body([]byte(nonsense)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "invalid nodes do not count as capacity", func() bool { return after.Account(broken).Capacity(pod).Total() == 0 })
	background(t, func(ctx context.Context) { _ = observer.Run(ctx) })
	eventually(t, "the ledger is valid again", func() bool {
		l, err := getLedger(t.Context(), client, broken)
		return err == nil && len(dropInvalid(l)) == 0 && len(invalidNodes(l)) == 0 && len(l.Classes) > 0
	})
	eventually(t, "the capacity is back", func() bool { return after.Account(broken).Capacity(pod).Total() == 20 })
}
