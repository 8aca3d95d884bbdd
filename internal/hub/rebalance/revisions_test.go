package rebalance

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/slots"
)

// testOwnRevisions moves many objects at once. Every change that somebody must see has its own revision, so that a
// resumed watch misses nothing: the mark of each Work, each copy and each activation.
func testOwnRevisions(t *testing.T, env *cellEnv) {
	const namespace, worksOfEach = "revisions", 5
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := env.sample(t, topology, namespace, 16, 0)
	env.populate(t, "cell-a", namespace, move...)
	old, term := env.stores["cell-a"], env.term
	var puts []clientv3.Op
	for _, name := range move {
		for i := range worksOfEach {
			value := fmt.Appendf(nil, `{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","metadata":{"name":"%s-%d.%s","namespace":"karmada-es-m1","uid":"%s-%d","labels":{"cellplane.io/slot":"%s"}},"spec":{"workload":{}}}`,
				name, i, namespace, name, i, slots.Of(namespace, name))
			puts = append(puts, cellstore.Put(old.Key(fmt.Sprintf("work.karmada.io/works/karmada-es-m1/%s-%d.%s", name, i, namespace)), value))
		}
	}
	if _, err := old.Txn(t.Context(), term, nil, puts...); err != nil {
		t.Fatal(err)
	}
	m := env.mover(t, topology)
	m.pace = newPace(64)
	m.pace.limit = 64 // all at once
	began := map[string]int64{}
	for cell, store := range env.stores {
		revision, err := store.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began[cell] = revision
	}
	if err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	marked := storetest.Alone(t, storetest.Since(t, old, began["cell-a"]), func(c storetest.Change) bool { return c.Of("work.karmada.io/works") })
	stored := storetest.Alone(t, storetest.Since(t, env.stores["cell-b"], began["cell-b"]), func(storetest.Change) bool { return true })
	if marked < len(move)*worksOfEach || stored < 2*len(move) {
		t.Errorf("%d Works were marked and %d objects stored", marked, stored)
	}
}
