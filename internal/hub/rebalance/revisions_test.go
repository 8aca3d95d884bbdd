package rebalance

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/slots"
)

// testAlone moves many objects at once. What somebody must get to see has a revision of its own, so that a watch that is resumed there
// misses nothing: the mark of each Work, each copy, and each copy that is put to use.
func testAlone(t *testing.T, y *yard) {
	const namespace, worksOfEach = "alone", 5
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := y.sample(t, topology, namespace, 16, 0)
	y.populate(t, "cell-a", namespace, move...)
	old, term := y.stores["cell-a"], y.term
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
	m := y.mover(t, topology)
	m.pace = newPace(64)
	m.pace.limit = 64 // all at once from the beginning
	began := map[string]int64{}
	for cell, store := range y.stores {
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
	stored := storetest.Alone(t, storetest.Since(t, y.stores["cell-b"], began["cell-b"]), func(storetest.Change) bool { return true })
	if marked < len(move)*worksOfEach || stored < 2*len(move) {
		t.Errorf("%d Works were marked and %d objects stored", marked, stored)
	}
}
