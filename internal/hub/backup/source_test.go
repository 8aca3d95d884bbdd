package backup

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// TestPass checks which pair gets a change: an object goes to that of its backup cell, its move away too, and its
// deletion to all.
func TestPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology, err := slots.Compile(1, someTopology(t))
		if err != nil {
			t.Fatal(err)
		}
		cell := slots.Index(rapid.IntRange(0, topology.Cells()-1).Draw(t, "cell"))
		s := &source{places: placementsOf(topology, cell), store: &cellstore.Store{Cell: topology.Name(cell)}}
		pairs := map[slots.Index]*pair{}
		for i := range topology.Cells() {
			if slots.Index(i) != cell {
				pairs[slots.Index(i)] = newPair(s.store.Cell, nil, 1, 0)
			}
		}
		name := fmt.Sprintf("web-%d", rapid.IntRange(0, 1000).Draw(t, "name"))
		status := rapid.SampledFrom([]string{"", names.RebalanceMigrating, names.RebalanceMigrated, "deleted"}).Draw(t, "status")
		event := &clientv3.Event{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: []byte("configmaps/shop/" + name), ModRevision: 1}}
		labels := ""
		switch status {
		case "":
		case "deleted":
			event.Type = mvccpb.DELETE
		default:
			labels = fmt.Sprintf(`,"labels":{"%s":"%s"}`, names.RebalanceStatusLabel, status)
		}
		event.Kv.Value = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"%s"%s}}`, name, labels)
		if err := s.pass(t.Context(), pairs, event); err != nil {
			t.Fatal(err)
		}

		target := CellFor(topology, cell, template(nil, name))
		for i, p := range pairs {
			added, found := p.pending["configmaps/shop/"+name]
			if want := status == "deleted" || i == target; found != want {
				t.Errorf("cell %d with backup cell %d passes %q to %d: %t", cell, target, status, i, found)
			}
			if remove := status == "deleted" || status == names.RebalanceMigrated; found && remove != (added.value == nil) {
				t.Errorf("the copy of an object that is %q is %q", status, added.value)
			}
		}
	})
}
