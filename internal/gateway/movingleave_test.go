package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testJoinEnds moves everything that belongs to cell-b, and makes it a normal cell.
func (f *movingFixture) testJoinEnds() {
	before := f.startPages()
	f.moveAll(func(slot slots.Slot) bool { return f.joining.Route(slot).Moving() })
	moved := f.joiningTopology()
	moved.MovedSlots = bytes.Repeat([]byte{0xff}, slots.Count/8)
	f.deliver(currentGateway, moved)
	stable := topology.Topology{Epoch: 3, Ready: true, Cells: f.cells, Leftovers: true}
	pages := f.startPages()
	f.deliver(currentGateway, stable)
	testenv.Eventually(f.t, "the gateway uses the topology", func(ctx context.Context) (bool, error) {
		epoch, err := f.gatewayMetric(ctx, "cellplane_gateway_topology_epoch")
		return epoch == 3, err
	})
	f.deliver(staleGateway, stable)
	before.finish()         // nothing had moved yet
	pages.finish()          // by the topology of the first page
	f.startPages().finish() // with leftovers
	testenv.Eventually(f.t, "the object that moved first is readable", func(ctx context.Context) (bool, error) {
		got, err := f.through(currentGateway).Get(ctx, f.movingName(movesAtOnce), metav1.GetOptions{})
		return err == nil && got.Annotations["value"] == "1", err
	})
}

// createdWhileLeaving belongs to cell-a before it leaves.
const createdWhileLeaving = "created-while-leaving"

// testCreateWhileLeaving lets cell-a leave: objects are created in the cell that remains. The stale gateway does not know of it.
func (f *movingFixture) testCreateWhileLeaving() {
	f.raiseFences(4)
	f.deliver(currentGateway, f.leavingTopology())
	name := f.stayingName(createdWhileLeaving)
	f.create(name)
	if !f.owns(newCell, name) {
		f.t.Error("an object was created in the leaving cell")
	}
}

// testEventsOfALaterTopology moves everything out of cell-a while the stale gateway watches by the earlier topology. It must keep the
// events of objects that arrive in cell-b until it knows the later one.
func (f *movingFixture) testEventsOfALaterTopology() {
	const early = "cellplane_gateway_early_events_total"
	before, err := f.gatewayMetric(f.t.Context(), early)
	must(f.t, err)
	f.moveAll(func(slots.Slot) bool { return true })
	testenv.Eventually(f.t, "the stale gateway has got an event of a later topology", func(ctx context.Context) (bool, error) {
		now, err := f.gatewayMetric(ctx, early)
		return now > before, errors.Join(fmt.Errorf("%s is %v", early, now), err)
	})
	f.deliver(staleGateway, f.leavingTopology())
}

// testLeaveEnds removes cell-a from the topology.
func (f *movingFixture) testLeaveEnds() {
	left := topology.Topology{
		Epoch: 5, Ready: true, Cells: f.cells[newCell:],
		Left: []topology.LeftCell{{Name: "cell-a", Least: f.revision(oldCell), Endpoint: f.cells[oldCell].Endpoint}},
	}
	pages := f.startPages()
	f.deliver(currentGateway, left)
	f.deliver(staleGateway, left)
	pages.finish()
	must(f.t, f.patchValue(f.stayingName(createdWhileLeaving), "5"))
}
