package ledger

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/cellplane/cellplane/internal/testenv"
)

// TestMalformedLedger has somebody write nonsense into one of two ledgers. Both are read, room is promised in both, and the
// keeper removes the nonsense, and tells anew what nodes there are.
func TestMalformedLedger(t *testing.T) {
	client := ledgersOf(t)
	broken, sound := "broken-"+rand.String(6), "sound-"+rand.String(6)
	keeper, err := NewKeeper(testenv.SharedAPIServer(t).RESTConfig(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{broken, sound} {
		deleteAtEnd(t, client, cluster)
		keeper.models[cluster] = newMember(4, 5).model
	}
	ctx, cancel := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() { _ = keeper.Run(ctx) })
	before, _ := openStore(t, "cell-a", broken)
	eventually(t, "the other ledger is there", func() bool { return before.Account(sound).Known() })
	cancel()
	keeping.Wait()

	nonsense := `{"reservations":[{"total":"many"},{"holder":"cell-b","workload":{"kind":"Deployment","name":"web"},"total":-5,"pods":[{"class":"x","count":-5}],"expires":"2099-01-01T00:00:00Z"}]}`
	if err := client.Patch(types.MergePatchType).Resource(resourceName).Name(broken).Body([]byte(nonsense)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	// One that has been following all the time, and one that reads everything anew.
	after, _ := openStore(t, "cell-b", broken)
	pod := onePod(t)
	for i, s := range []*Store{before, after} {
		for _, cluster := range []string{broken, sound} {
			eventually(t, "there is room", func() bool { return s.Account(cluster).Room(pod).Total() == 20-int64(i) })
			if err := s.Reserve(t.Context(), []Claim{{Cluster: cluster, Workload: workload(s.options.Holder), Total: 1, More: 1, Pod: pod}}); err != nil {
				t.Errorf("reserving in %s: %v", cluster, err)
			}
		}
	}
	l, err := getLedger(t.Context(), client, broken)
	if err != nil {
		t.Fatal(err)
	}
	if faults := sift(l); len(faults) > 0 || len(l.Reservations) != 2 {
		t.Errorf("with a promise the nonsense was written again: %v, %+v", faults, l.Reservations)
	}

	nonsense = `{"revision":1000,"reservations":[{"total":"many"}],"classes":[{"name":"x","nodes":["very many"]}]}`
	if err := client.Patch(types.MergePatchType).Resource(resourceName).Name(broken).Body([]byte(nonsense)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no room is seen on nodes that nobody understands", func() bool { return after.Account(broken).Room(pod).Total() == 0 })
	background(t, func(ctx context.Context) { _ = keeper.Run(ctx) })
	eventually(t, "the ledger makes sense again", func() bool {
		l, err := getLedger(t.Context(), client, broken)
		return err == nil && len(sift(l)) == 0 && len(unreadable(l)) == 0 && len(l.Classes) > 0
	})
	eventually(t, "there is room again", func() bool { return after.Account(broken).Room(pod).Total() == 20 })
}
