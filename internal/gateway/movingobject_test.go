package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// movingObject is a Deployment that the test moves from cell-a to cell-b, with the steps of the mover.
type movingObject struct {
	f   *movingFixture
	key string
}

func (f *movingFixture) object(name string) *movingObject {
	return &movingObject{f: f, key: "deployments/" + f.namespace + "/" + name}
}

func (o *movingObject) stored(cell int) cellstore.KV {
	o.f.t.Helper()
	store := o.f.stores[cell]
	kv, _, err := store.Get(o.f.t.Context(), store.Key(o.key))
	must(o.f.t, err)
	return kv
}

func (o *movingObject) put(cell int, value []byte, mark cellstore.Mark) {
	o.f.t.Helper()
	marked, err := cellstore.WithMark(value, mark)
	must(o.f.t, err)
	store := o.f.stores[cell]
	unchanged := cellstore.Unchanged(store.Key(o.key), o.stored(cell).ModRevision)
	_, err = store.Txn(o.f.t.Context(), 1, []clientv3.Cmp{unchanged}, cellstore.Put(store.Key(o.key), marked))
	must(o.f.t, err)
}

// at returns a cell with the revision at which it stores the object.
func (o *movingObject) at(cell int) string {
	o.f.t.Helper()
	return fmt.Sprintf("%s/%d", o.f.stores[cell].Cell, o.stored(cell).ModRevision)
}

func rebalanceStatus(value string) map[string]string {
	return map[string]string{names.RebalanceStatusLabel: value}
}

func (o *movingObject) freeze() {
	o.f.t.Helper()
	o.put(oldCell, o.stored(oldCell).Value, cellstore.Mark{Labels: rebalanceStatus(names.RebalanceMigrating)})
}

func (o *movingObject) copy() {
	o.f.t.Helper()
	o.put(newCell, o.stored(oldCell).Value, cellstore.Mark{})
}

func (o *movingObject) commit() {
	o.f.t.Helper()
	o.put(oldCell, o.stored(oldCell).Value, cellstore.Mark{
		Labels: rebalanceStatus(names.RebalanceMigrated), Annotations: map[string]string{names.CopiedAtAnnotation: o.at(newCell)},
	})
}

func (o *movingObject) activate() {
	o.f.t.Helper()
	o.put(newCell, o.stored(newCell).Value, cellstore.Mark{
		Labels: rebalanceStatus(""), Annotations: map[string]string{names.MovedFromAnnotation: o.at(oldCell), names.CopiedAtAnnotation: ""},
	})
}

// steps are the steps of a move in order.
func (o *movingObject) steps() []func() { return []func(){o.freeze, o.copy, o.commit, o.activate} }

func (o *movingObject) move() {
	o.f.t.Helper()
	for _, step := range o.steps() {
		step()
	}
}

// moveAll moves the objects of cell-a whose slots are chosen.
func (f *movingFixture) moveAll(chosen func(slots.Slot) bool) {
	f.t.Helper()
	list, err := f.in(oldCell).List(f.t.Context(), metav1.ListOptions{LabelSelector: "!" + names.RebalanceStatusLabel})
	must(f.t, err)
	for i := range list.Items {
		if name := list.Items[i].Name; chosen(slots.Of(f.namespace, name)) {
			f.object(name).move()
		}
	}
}

// stored returns what a cell stores of an object, nil if nothing.
func (f *movingFixture) stored(cell int, name string) *appsv1.Deployment {
	f.t.Helper()
	got, err := f.in(cell).Get(f.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(f.t, err)
	return got
}

// owns reports whether a cell stores an object that has not moved away.
func (f *movingFixture) owns(cell int, name string) bool {
	f.t.Helper()
	got := f.stored(cell, name)
	return got != nil && got.Labels[names.RebalanceStatusLabel] != names.RebalanceMigrated
}

// raiseFences makes both cells refuse earlier epochs.
func (f *movingFixture) raiseFences(epoch int64) {
	f.t.Helper()
	for _, cell := range f.fences {
		must(f.t, cell.Raise(f.t.Context(), epoch))
	}
}

// deliver sends a topology to a gateway.
func (f *movingFixture) deliver(gateway int, t topology.Topology) { f.sources[gateway] <- t }

// joiningTopology is epoch 2, in which cell-b joins from its present revision on.
func (f *movingFixture) joiningTopology() topology.Topology {
	f.t.Helper()
	cells := append([]topology.Cell(nil), f.cells...)
	cells[newCell].State = cellplanev1alpha1.CellStateIn
	before := map[string]uint64{"cell-a": f.revision(oldCell)}
	return topology.Topology{Epoch: 2, Ready: true, Cells: cells, Before: before, From: map[string]uint64{"cell-b": f.revision(newCell)}}
}

// leavingTopology is epoch 4, in which cell-a leaves.
func (f *movingFixture) leavingTopology() topology.Topology {
	cells := append([]topology.Cell(nil), f.cells...)
	cells[oldCell].State = cellplanev1alpha1.CellStateOut
	return topology.Topology{Epoch: 4, Ready: true, Cells: cells}
}

// revision is the present revision of a cell's store.
func (f *movingFixture) revision(cell int) uint64 {
	f.t.Helper()
	revision, err := f.stores[cell].Revision(f.t.Context())
	must(f.t, err)
	return uint64(revision)
}

// waitHeld waits until the gateways hold exactly so many requests.
func (f *movingFixture) waitHeld(count float64) {
	f.t.Helper()
	testenv.Eventually(f.t, fmt.Sprintf("%v requests are held", count), func(ctx context.Context) (bool, error) {
		held, err := f.gatewayMetric(ctx, "cellplane_gateway_held_requests")
		return held == count, errors.Join(fmt.Errorf("%v are held", held), err)
	})
}

// gatewayMetric reads a metric without labels. Both gateways run in this process and share their metrics.
func (f *movingFixture) gatewayMetric(ctx context.Context, name string) (float64, error) {
	return sumOfMetric(ctx, f.clients[currentGateway], func(series string) bool { return series == name })
}

// readsOfDeployments matches reads of single Deployments in the metrics of an API server.
var readsOfDeployments = regexp.MustCompile(`^apiserver_request_total\{.*resource="deployments",.*verb="GET"`)

// reads counts how often a cell was asked for a single Deployment. A gateway that holds a request asks again and again.
func (f *movingFixture) reads(cell int) float64 {
	f.t.Helper()
	reads, err := sumOfMetric(f.t.Context(), f.direct[cell], readsOfDeployments.MatchString)
	must(f.t, err)
	return reads
}

// waitReads waits until a cell was asked for single Deployments so many times more than before.
func (f *movingFixture) waitReads(cell int, before, more float64) {
	f.t.Helper()
	testenv.Eventually(f.t, fmt.Sprintf("%s is asked %v times", f.stores[cell].Cell, more), func(context.Context) (bool, error) {
		return f.reads(cell) >= before+more, nil
	})
}

// sumOfMetric adds up the series of a server's metrics that are chosen.
func sumOfMetric(ctx context.Context, server kubernetes.Interface, chosen func(series string) bool) (float64, error) {
	metrics, err := server.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(string(metrics)) {
		split := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || split < 0 || !chosen(line[:split]) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[split:]), 64)
		if err != nil {
			return 0, fmt.Errorf("reading %q: %w", line, err)
		}
		sum += value
	}
	return sum, nil
}
