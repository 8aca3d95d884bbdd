package gateway_test

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// journey is an object on its way, and its test the mover.
type journey struct {
	y        *yard
	key      string
	from, to int
}

func (y *yard) journey(name string) *journey {
	return &journey{y: y, key: "deployments/" + y.namespace + "/" + name, to: 1}
}

func (j *journey) read(cell int) cellstore.KV {
	j.y.t.Helper()
	kv, _, err := j.y.stores[cell].Get(j.y.t.Context(), j.y.stores[cell].Key(j.key))
	must(j.y.t, err)
	return kv
}

func (j *journey) put(cell int, value []byte, mark cellstore.Mark) {
	j.y.t.Helper()
	marked, err := cellstore.WithMark(value, mark)
	must(j.y.t, err)
	store := j.y.stores[cell]
	_, err = store.Txn(j.y.t.Context(), 1, []clientv3.Cmp{cellstore.Unchanged(store.Key(j.key), j.read(cell).ModRevision)}, cellstore.Put(store.Key(j.key), marked))
	must(j.y.t, err)
}

func status(value string) map[string]string {
	return map[string]string{names.RebalanceStatusLabel: value}
}

func (j *journey) freeze() {
	j.y.t.Helper()
	j.put(j.from, j.read(j.from).Value, cellstore.Mark{Labels: status(names.RebalanceMigrating)})
}

func (j *journey) copy() {
	j.y.t.Helper()
	j.put(j.to, j.read(j.from).Value, cellstore.Mark{})
}

func (j *journey) commit() {
	j.y.t.Helper()
	at := fmt.Sprintf("%s/%d", j.y.stores[j.to].Cell, j.read(j.to).ModRevision)
	j.put(j.from, j.read(j.from).Value, cellstore.Mark{Labels: status(names.RebalanceMigrated), Annotations: map[string]string{names.CopiedAtAnnotation: at}})
}

func (j *journey) activate() {
	j.y.t.Helper()
	from := fmt.Sprintf("%s/%d", j.y.stores[j.from].Cell, j.read(j.from).ModRevision)
	j.put(j.to, j.read(j.to).Value, cellstore.Mark{Labels: status(""), Annotations: map[string]string{names.MovedFromAnnotation: from, names.CopiedAtAnnotation: ""}})
}

// raise makes the cells refuse earlier epochs.
func (y *yard) raise(epoch int64, cells ...int) {
	y.t.Helper()
	for _, i := range cells {
		must(y.t, y.fences[i].Raise(y.t.Context(), epoch))
	}
}

// deliver tells a gateway of a topology and waits until it routes by it.
func (y *yard) deliver(gateway int, t topology.Topology) {
	y.t.Helper()
	y.scripts[gateway] <- t
}

// joining is the topology in which cell-b joins.
func (y *yard) joining(from uint64) topology.Topology {
	cells := append([]topology.Cell(nil), y.cells...)
	cells[1].State = cellplanev1alpha1.CellStateIn
	return topology.Topology{Epoch: 2, Ready: true, Cells: cells, From: map[string]uint64{"cell-b": from}}
}

// revision is how far a cell's store is.
func (y *yard) revision(cell int) uint64 {
	y.t.Helper()
	revision, err := y.stores[cell].Revision(y.t.Context())
	must(y.t, err)
	return uint64(revision)
}

// inCell reports whether a cell has an object that has not moved away.
func (y *yard) inCell(cell int, name string) bool {
	y.t.Helper()
	got, err := y.direct[cell].AppsV1().Deployments(y.namespace).Get(y.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	must(y.t, err)
	return got.Labels[names.RebalanceStatusLabel] != names.RebalanceMigrated
}

// read returns what a cell has of an object, nil if nothing.
func (y *yard) read(cell int, name string) *appsv1.Deployment {
	y.t.Helper()
	got, err := y.direct[cell].AppsV1().Deployments(y.namespace).Get(y.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(y.t, err)
	return got
}

// finish ends the change, and then empties cell-a.
func (y *yard) finish() {
	y.moveAll(func(slot slots.Slot) bool { return y.moving.Route(slot).Moving() })
	normal := topology.Topology{Epoch: 3, Ready: true, Cells: y.cells}
	y.deliver(0, normal)
	y.deliver(1, normal)
	testenv.Eventually(y.t, "everything is there in the next epoch", func(context.Context) (bool, error) {
		return y.get(0, y.name("stages", true)).Annotations["value"] == "1", nil
	})
	behind := y.watch(1)
	leaving := topology.Topology{Epoch: 4, Ready: true, Cells: append([]topology.Cell(nil), y.cells...)}
	leaving.Cells[0].State = cellplanev1alpha1.CellStateOut
	y.raise(4, 0, 1)
	y.deliver(0, leaving)
	made := y.name("made-while-leaving", false)
	y.create(0, made)
	if !y.inCell(1, made) {
		y.t.Error("something was created in a cell that leaves")
	}
	y.moveAll(func(slots.Slot) bool { return true })
	// A watch through a gateway that has not heard of it must not pass over what has arrived in a cell that it reads.
	y.waitMetric("cellplane_gateway_early_events_total")
	y.deliver(1, leaving)
	left := topology.Topology{Epoch: 5, Ready: true, Cells: y.cells[1:], Left: []topology.LeftCell{{Name: "cell-a", Least: y.revision(0), Endpoint: y.cells[0].Endpoint}}}
	y.deliver(0, left)
	y.deliver(1, left)
	_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), made, types.MergePatchType, []byte(`{"metadata":{"annotations":{"value":"5"}}}`), metav1.PatchOptions{})
	must(y.t, err)
	behind.expect(y.list(0))
	behind.check()
}

// moveAll moves what is left in cell-a.
func (y *yard) moveAll(moves func(slots.Slot) bool) {
	y.t.Helper()
	list, err := y.direct[0].AppsV1().Deployments(y.namespace).List(y.t.Context(), metav1.ListOptions{LabelSelector: "!" + names.RebalanceStatusLabel})
	must(y.t, err)
	for _, item := range list.Items {
		if !moves(slots.Of(y.namespace, item.Name)) {
			continue
		}
		j := y.journey(item.Name)
		j.freeze()
		j.copy()
		j.commit()
		j.activate()
	}
}
