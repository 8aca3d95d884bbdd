package topology

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
)

func cellsOf(states ...cellplanev1alpha1.CellState) []Cell {
	var cells []Cell
	for i, state := range states {
		if state != "" {
			cells = append(cells, Cell{Name: string(rune('a' + i)), Weight: 1, State: state})
		}
	}
	return cells
}

const (
	normal = cellplanev1alpha1.CellStateNormal
	in     = cellplanev1alpha1.CellStateIn
	out    = cellplanev1alpha1.CellStateOut
	failed = cellplanev1alpha1.CellStateFailed
)

func tracked(t *testing.T, topologies ...Topology) *Tracker {
	t.Helper()
	tracker := NewTracker(nil, &fleet.Cells{}, "")
	for _, topology := range topologies {
		tracker.take(t.Context(), topology)
	}
	return tracker
}

func TestCarry(t *testing.T) {
	stable := Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal, normal)}
	joining := Topology{Epoch: 2, Ready: true, Cells: cellsOf(normal, normal, in), From: map[string]uint64{"c": 50}}
	joined := Topology{Epoch: 3, Ready: true, Cells: cellsOf(normal, normal, normal)}
	leaving := Topology{Epoch: 4, Ready: true, Cells: cellsOf(out, normal, normal)}
	gone := Topology{Epoch: 5, Ready: true, Cells: cellsOf("", normal, normal), Left: []LeftCell{{Name: "a", Least: 90}}}
	again := Topology{Epoch: 6, Ready: true, Cells: cellsOf(in, normal, normal), From: map[string]uint64{"a": 95}}
	back := Topology{Epoch: 3, Ready: true, Cells: cellsOf(normal, normal, out)}
	lost := Topology{Epoch: 3, Ready: true, Cells: cellsOf(failed, normal, normal)}
	unknownStart := joining
	unknownStart.From = nil
	for _, test := range []struct {
		name       string
		topologies []Topology
		from       position.Position
		want       []uint64 // nil means that it cannot be carried forward
		passed     int
	}{
		{"the same epoch", []Topology{stable}, position.Position{Epoch: 1, Versions: []uint64{10, 20}}, []uint64{10, 20}, 0},
		{"a cell joins", []Topology{stable, joining}, position.Position{Epoch: 1, Versions: []uint64{10, 20}}, []uint64{10, 20, 50}, 1},
		{"the start of the new cell is unknown", []Topology{stable, unknownStart}, position.Position{Epoch: 1, Versions: []uint64{10, 20}}, nil, 0},
		{"a cell has joined", []Topology{stable, joining, joined}, position.Position{Epoch: 1, Versions: []uint64{10, 20}}, []uint64{10, 20, 50}, 2},
		{"a change was missed", []Topology{stable, {Epoch: 3, Ready: true, Cells: joined.Cells, From: joining.From}}, position.Position{Epoch: 1, Versions: []uint64{10, 20}}, nil, 0},
		{"a change is reverted", []Topology{stable, joining, back}, position.Position{Epoch: 2, Versions: []uint64{10, 20, 60}}, []uint64{10, 20, 60}, 1},
		{"a cell has left", []Topology{joined, leaving, gone}, position.Position{Epoch: 4, Versions: []uint64{80, 20, 60}}, []uint64{80, 20, 60}, 1},
		{"all events of the cell that left were seen", []Topology{joined, leaving, gone, again}, position.Position{Epoch: 5, Versions: []uint64{90, 20, 60}}, []uint64{95, 20, 60}, 1},
		{"some events of the cell that left were not seen", []Topology{joined, leaving, gone, again}, position.Position{Epoch: 5, Versions: []uint64{89, 20, 60}}, nil, 0},
		{"a cell has failed", []Topology{stable, joining, lost}, position.Position{Epoch: 2, Versions: []uint64{10, 20, 60}}, nil, 0},
		{"an epoch that is not remembered", []Topology{joined}, position.Position{Epoch: 1, Versions: []uint64{10, 20}}, nil, 0},
		{"a position with another number of cells", []Topology{stable, joining}, position.Position{Epoch: 1, Versions: []uint64{10}}, nil, 0},
		{"a future epoch", []Topology{stable}, position.Position{Epoch: 9, Versions: []uint64{10, 20}}, nil, 0},
	} {
		tracker := tracked(t, test.topologies...)
		got, err := tracker.Carry(test.from, tracker.View())
		switch {
		case test.want == nil:
			if !errors.Is(err, position.ErrForeign) {
				t.Errorf("%s: %v, %v", test.name, got, err)
			}
		case err != nil || got.Epoch != tracker.View().Epoch() || len(got.Passed) != test.passed || position.Compare(got.Position, position.Position{Epoch: got.Epoch, Versions: test.want}) != 0:
			t.Errorf("%s: %+v, %v; want %v", test.name, got, err, test.want)
		}
	}
}

// TestCarryHub carries positions with and without the hub. Its version stays what it was: the hub is the same in all epochs.
func TestCarryHub(t *testing.T) {
	topologies := []Topology{
		{Epoch: 1, Ready: true, Cells: cellsOf(normal, normal)},
		{Epoch: 2, Ready: true, Cells: cellsOf(normal, normal, in), From: map[string]uint64{"c": 50}},
	}
	for _, test := range []struct {
		name string
		from position.Position
		want []uint64
	}{
		{"the same epoch", position.Position{Epoch: 2, Versions: []uint64{10, 20, 60, 7}}, []uint64{10, 20, 60, 7}},
		{"the same epoch, of a kind in cells only or an earlier release", position.Position{Epoch: 2, Versions: []uint64{10, 20, 60}}, []uint64{10, 20, 60, 0}},
		{"a cell joins", position.Position{Epoch: 1, Versions: []uint64{10, 20, 7}}, []uint64{10, 20, 50, 7}},
		{"a cell joins, of a kind in cells only or an earlier release", position.Position{Epoch: 1, Versions: []uint64{10, 20}}, []uint64{10, 20, 50, 0}},
		{"too many fields", position.Position{Epoch: 1, Versions: []uint64{10, 20, 30, 7}}, nil},
	} {
		tracker := NewTracker(nil, &fleet.Cells{}, "")
		tracker.Hub = true
		for _, topology := range topologies {
			tracker.take(t.Context(), topology)
		}
		got, err := tracker.Carry(test.from, tracker.View())
		if (err != nil) != (test.want == nil) || err == nil && !slices.Equal(got.Versions, test.want) {
			t.Errorf("%s: %v, %v; want %v", test.name, got.Versions, err, test.want)
		}
	}
	// A gateway of an earlier release does not know the hub's field.
	tracker := tracked(t, topologies...)
	if got, err := tracker.Carry(position.Position{Epoch: 2, Versions: []uint64{10, 20, 60, 7}}, tracker.View()); !errors.Is(err, position.ErrForeign) {
		t.Errorf("without the hub: %v, %v; want that it is foreign", got, err)
	}
}

// TestHubNumber checks that the hub has its own number in versions, with which it is found, and that objects there have versions.
func TestHubNumber(t *testing.T) {
	topology, _, err := Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal, normal)}.WithOwners(nil)
	if err != nil {
		t.Fatal(err)
	}
	tracker := NewTracker(nil, &fleet.Cells{}, "")
	tracker.Hub = true
	tracker.take(t.Context(), topology)
	view := tracker.View()
	hub := view.HubIndex()
	if found, ok := view.Numbered(slots.HubNumber); !ok || found != hub || view.Name(hub) != "hub" {
		t.Errorf("the hub is %q at %d, want it at %d: %v", view.Name(hub), found, hub, ok)
	}
	version := view.Unowned(hub, 12774)
	if got, err := position.ParseVersion(version.String()); err != nil || got != version {
		t.Errorf("the version %q is %v: %v", version, got, err)
	}
	if _, owned := view.Version(hub, 5, 12774); owned {
		t.Error("the hub owns a slot")
	}
}

// TestJoined begins at versions of a cell that has joined: the others were read before it.
func TestJoined(t *testing.T) {
	first, _, err := Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal, normal)}.WithOwners(nil)
	if err != nil {
		t.Fatal(err)
	}
	joining := Topology{
		Epoch: 2, Ready: true, Cells: cellsOf(normal, normal, in, in),
		From: map[string]uint64{"c": 50, "d": 60}, Before: map[string]uint64{"a": 10, "b": 20},
	}
	joined := Topology{Epoch: 3, Ready: true, Cells: cellsOf(normal, normal, normal, normal)}
	unknown := joining
	unknown.Before = map[string]uint64{"a": 10}
	for _, test := range []struct {
		name       string
		topologies []Topology
		cell       string
		revision   uint64
		want       []uint64 // of epoch 2
	}{
		{"while it joins", []Topology{first, joining}, "c", 55, []uint64{10, 20, 55, 60}},
		{"after it has joined", []Topology{first, joining, joined}, "c", 55, []uint64{10, 20, 55, 60}},
		{"another one", []Topology{first, joining}, "d", 61, []uint64{10, 20, 50, 61}},
		{"before it joined", []Topology{first, joining}, "c", 50, nil},
		{"a cell that was there before", []Topology{first, joining}, "a", 55, nil},
		{"other cells were not read", []Topology{first, unknown}, "c", 55, nil},
		{"when it joined is not remembered", []Topology{first, joined}, "c", 55, nil},
	} {
		tracker := tracked(t, test.topologies...)
		cell, _ := tracker.View().Index(test.cell)
		got, found := tracker.Joined(position.Version{Change: 2, Cell: tracker.View().Number(cell), Revision: test.revision})
		if found != (test.want != nil) || found && position.Compare(got, position.Position{Epoch: 2, Versions: test.want}) != 0 {
			t.Errorf("%s: %v, %v; want %v", test.name, got, found, test.want)
		}
	}
}

// TestTake checks that requests are routed by the newest epoch that is in force.
func TestTake(t *testing.T) {
	tracker := tracked(t, Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal, normal)})
	first := tracker.View()
	coming := Topology{Epoch: 2, Cells: cellsOf(normal, normal, in), From: map[string]uint64{"c": 5}}
	tracker.take(t.Context(), coming)
	view := tracker.View()
	if view.Epoch() != 1 || view.Latest() != 2 {
		t.Fatalf("routed by epoch %d, latest %d", view.Epoch(), view.Latest())
	}
	stable := 0
	for slot := range slots.Slot(slots.Count) {
		if view.Stable(slot) {
			stable++
		}
	}
	if stable == 0 || stable == slots.Count {
		t.Errorf("%d slots are stable", stable)
	}
	select {
	case <-first.Superseded():
		t.Error("superseded by an epoch that is not in force")
	default:
	}
	waited := make(chan int64, 1)
	go func() {
		view, _ := tracker.Await(context.Background(), func(v *View) bool { return v.Epoch() > 1 })
		waited <- view.Epoch()
	}()
	coming.Ready = true
	tracker.take(t.Context(), coming)
	if epoch := <-waited; epoch != 2 {
		t.Errorf("Await returned epoch %d, want 2", epoch)
	}
	<-first.Superseded()
	// An epoch in force stays in force, and a moved slot stays moved.
	moved := coming
	moved.MovedSlots = []byte{1}
	tracker.take(t.Context(), moved)
	coming.Ready = false
	tracker.take(t.Context(), coming)
	if view := tracker.View(); !view.Ready || view.MovedSlots[0] != 1 {
		t.Errorf("ready: %v, moved %v", view.Ready, view.MovedSlots)
	}
	if tracker.take(t.Context(), Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal)}) {
		t.Error("an earlier epoch was accepted")
	}
}

// TestHistoryIsSaved checks that a restarted Tracker still carries positions forward.
// What a list shows at a position does not depend on what has moved since.
func TestPast(t *testing.T) {
	moving := Topology{Epoch: 2, Ready: true, Cells: cellsOf(normal, cellplanev1alpha1.CellStateIn)}
	first, _, err := Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal)}.WithOwners(nil)
	if err != nil {
		t.Fatal(err)
	}
	tracker := tracked(t, first, moving)
	slot := slots.Slot(0)
	for !tracker.View().Locate(slot).Moving() {
		slot++
	}
	moving.MovedSlots = bytes.Repeat([]byte{0xff}, slots.Count/8)
	tracker.take(t.Context(), moving)
	now := tracker.View()
	if now.Locate(slot).Moving() {
		t.Fatal("the slot has not moved")
	}
	if !tracker.Past(2, now).Locate(slot).Moving() {
		t.Error("within the epoch, a list of the past leaves the old owner out")
	}
	if SameOwners(now, now) {
		t.Error("slots have one owner at all times of an epoch in which they move")
	}
	tracker.take(t.Context(), Topology{Epoch: 3, Ready: true, Cells: cellsOf(normal, normal)})
	now = tracker.View()
	now.Upstreams = []*fleet.Upstream{{}, {}}
	if past := tracker.Past(2, now); past == nil || !past.Locate(slot).Moving() {
		t.Errorf("after the epoch, a list of the past leaves the old owner out: %v", past)
	}
}

func TestHistoryIsSaved(t *testing.T) {
	dir := t.TempDir()
	source := make(chan Topology)
	tracker := NewTracker(channel(source), &fleet.Cells{}, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = tracker.Run(ctx) }()
	source <- Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal)}
	source <- Topology{Epoch: 2, Ready: true, Cells: cellsOf(normal, in), From: map[string]uint64{"b": 7}}
	if _, found := tracker.Await(t.Context(), func(v *View) bool { return v.Epoch() == 2 }); !found {
		t.Fatal("the topology was not adopted")
	}
	cancel()
	<-ended
	tracker = NewTracker(channel(source), &fleet.Cells{}, dir)
	go func() { _ = tracker.Run(t.Context()) }()
	<-tracker.Known()
	got, err := tracker.Carry(position.Position{Epoch: 1, Versions: []uint64{3}}, tracker.View())
	if err != nil || got.Versions[0] != 3 || got.Versions[1] != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

// channel is a Source that delivers what it receives.
type channel chan Topology

// Run implements Source.
func (c channel) Run(ctx context.Context, deliver func(Topology)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-c:
			deliver(t)
		}
	}
}

// TestRoutesMatchHubManager checks that gateways look for a slot where the hub manager moves it.
func TestRoutesMatchHubManager(t *testing.T) {
	spec := cellplanev1alpha1.CellTopologySpec{Cells: []cellplanev1alpha1.TopologyCell{
		{Name: "a", Weight: 2, State: cellplanev1alpha1.CellStateNormal},
		{Name: "b", Weight: 1, Seed: 3, TargetWeight: ptr.To(int32(4)), State: cellplanev1alpha1.CellStateNormal},
		{Name: "c", Weight: 1, Seed: 99, State: cellplanev1alpha1.CellStateIn},
		{Name: "d", Weight: 3, Seed: 7, State: cellplanev1alpha1.CellStateOut},
		{Name: "e", Weight: 3, State: cellplanev1alpha1.CellStateFailed},
	}}
	ours := Topology{Epoch: 5}
	for _, cell := range spec.Cells {
		ours.Cells = append(ours.Cells, cellOf(cell))
	}
	got, err := ours.compile()
	if err != nil {
		t.Fatal(err)
	}
	want, err := cells.Compile(5, &spec)
	if err != nil {
		t.Fatal(err)
	}
	for slot := range slots.Slot(slots.Count) {
		if got.Route(slot) != want.Route(slot) {
			t.Fatalf("slot %d: the gateway routes to %+v, the hub manager to %+v", slot, got.Route(slot), want.Route(slot))
		}
	}
}

// TestOwnersStay checks that a tracker keeps the owners of slots: when a later delivery of the epoch lacks them, when a later epoch
// does, and on disk.
func TestOwnersStay(t *testing.T) {
	dir := t.TempDir()
	source := make(chan Topology)
	tracker := NewTracker(channel(source), &fleet.Cells{}, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = tracker.Run(ctx) }()
	first, owners, err := Topology{Epoch: 1, Ready: true, Cells: cellsOf(normal)}.WithOwners(nil)
	if err != nil {
		t.Fatal(err)
	}
	source <- first
	first.Owners = nil
	source <- first
	await := func(epoch int64) *View {
		view, found := tracker.Await(t.Context(), func(v *View) bool { return v.Epoch() == epoch })
		if !found {
			t.Fatal("the topology was not adopted")
		}
		return view
	}
	source <- Topology{Epoch: 2, Ready: true, Cells: cellsOf(normal, in)}
	if view := await(2); view.Owners == nil || view.Owners.Number("a") != owners.Number("a") || view.Owners.Number("b") == 0 {
		t.Error("the owners were not carried into an epoch that has none")
	}
	cancel()
	<-ended
	tracker = NewTracker(channel(source), &fleet.Cells{}, dir)
	go func() { _ = tracker.Run(t.Context()) }()
	<-tracker.Known()
	if view := tracker.View(); view.Owners == nil || view.Owners.Epoch() != 2 {
		t.Error("the saved topology has no owners")
	}
}
