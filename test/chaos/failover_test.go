package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/cut"
)

// clock says by how much the wall clocks of some processes are set wrong.
type clock struct {
	of *regexp.Regexp
	by time.Duration
}

// failover is a scenario in which a cell is failed over, or must not be.
type failover struct {
	name string
	// cut returns the links that are cut before; none if it is nil.
	cut func(l *links, cell string) []cut.Link
	// automatic means that the hub manager decides, and not a user.
	automatic bool
	// refused means that the cell must not be failed over.
	refused bool
	// lossless means that nothing at all may be lost. Otherwise, what was not replicated may be lost, and must be reported.
	lossless bool
	// paused is a gateway that is paused from before the failover until after it.
	paused string
	// clock sets the wall clocks of some processes when the links are cut.
	clock clock
	// quick scenarios are part of each run.
	quick bool
}

var failovers = []failover{
	{
		// Gateways still reach the cell, so it works.
		name: "hub manager cut off", automatic: true, refused: true, lossless: true, quick: true,
		cut: func(l *links, cell string) []cut.Link {
			return append(l.between(hubManagers, exactly(apiServer(cell))), l.between(hubManagers, exactly(store(cell)))...)
		},
	},
	{name: "reachable cell", lossless: true, quick: true},
	{
		// The gateway must stop acknowledging before copies are promoted.
		name: "gateway cut off with the cell",
		cut:  func(l *links, cell string) []cut.Link { return l.split("gateway-2", cell) },
	},
	{
		name: "gateway cut off with the cell, automatic", automatic: true,
		cut: func(l *links, cell string) []cut.Link { return l.split("gateway-2", cell) },
	},
	{
		// It may have sent writes, and have answers that it has not read yet.
		name: "gateway paused and cut off with the cell", paused: "gateway-2",
		cut: func(l *links, cell string) []cut.Link { return l.split("gateway-2", cell) },
	},
	{name: "gateway paused", paused: "gateway-2", lossless: true},
	{
		name: "gateway cut off with the cell, its clock set back", quick: true, clock: clock{exactly("gateway-2"), -farthestBack},
		cut: func(l *links, cell string) []cut.Link { return l.split("gateway-2", cell) },
	},
	{
		// What it has not reached for a moment must not seem to be silent for long.
		name: "hub manager cut off, its clock set forward", automatic: true, refused: true, lossless: true, clock: clock{hubManagers, 10 * time.Minute},
		cut: func(l *links, cell string) []cut.Link {
			return append(l.between(hubManagers, exactly(apiServer(cell))), l.between(hubManagers, exactly(store(cell)))...)
		},
	},
	{
		// Its lease must not last longer than the hub manager waits.
		name: "clocks of gateways set back", lossless: true, clock: clock{gateways, -farthestBack},
	},
	{name: "cell cut off", automatic: true, cut: func(l *links, cell string) []cut.Link { return l.around(cell) }},
	{
		name: "API server cut off", lossless: true,
		cut: func(l *links, cell string) []cut.Link { return l.between(anything, exactly(apiServer(cell))) },
	},
	{
		name: "gateway cut off from the hub and the others", lossless: true,
		cut: func(l *links, cell string) []cut.Link {
			return slices.DeleteFunc(l.between(exactly("gateway-2"), anything), func(link cut.Link) bool { return link.To == apiServer(cell) })
		},
	},
}

// failoverAfter is when a cell is failed over automatically.
const failoverAfter = 6 * time.Second

// run fails a cell over while clients work, and checks what is lost.
func (f *failover) run(t *testing.T, w *world, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it must be reproducible
	n := &nemesis{random: random, hub: w.hub, links: w.links, processes: w.federation.Processes, cells: []string{"cell-a", "cell-b", "cell-c"}}
	if f.automatic {
		w.replaceHubManagers(t, failoverAfter)
		defer w.replaceHubManagers(t, 0)
	}
	cell := w.failoverCandidate(t, n)
	w.waitBackedUp(t)
	h := newHistory()
	c, err := w.newClients(h)
	if err != nil {
		t.Fatal(err)
	}
	made := &creations{clients: c, acknowledged: map[string]time.Duration{}}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	stop := func() { cancel(); group.Wait() }
	defer stop()
	for i := range *workers {
		own := rand.New(rand.NewPCG(seed, uint64(i)+2)) //nolint:gosec // as above
		group.Go(func() { c.run(ctx, i, own) })
	}
	for gateway := range c.gateways {
		for _, namespace := range c.namespaces {
			group.Go(func() { made.run(ctx, gateway, namespace) })
		}
	}
	made.waitMore(t)

	began := time.Now()
	from := time.Since(h.begun)
	endFaults := func() {
		if err := n.endFaults(); err != nil {
			t.Error(err)
		}
	}
	defer endFaults()
	if f.clock.of != nil {
		for _, p := range w.parts.named(f.clock.of) {
			if err := n.shift(p, f.clock.by); err != nil {
				t.Fatal(err)
			}
			n.note("set the clock of %s by %v", p.Name(), f.clock.by)
		}
	}
	if f.cut != nil {
		all := f.cut(w.links, cell)
		n.note("cut %v", all)
		w.links.set(all, cut.Fault{Mode: cut.Blackhole})
	}
	resume := f.pause(t, w, n)
	switch {
	case f.refused:
		w.waitRefused(t, cell)
		made.waitMore(t)
	case f.automatic:
		w.waitFailed(t, cell)
	default:
		w.edit(t, n, "fail "+cell, cells.Fail(cell))
	}
	if w.stateOf(t, cell) == cellplanev1alpha1.CellStateFailed {
		if f.refused {
			t.Errorf("%s was failed over, although gateways reach it", cell)
		}
		w.waitStable(t, n)
		n.note("failed over")
		resume()
		made.waitMore(t)
	}
	until := time.Since(h.begun)
	endFaults()
	made.waitMore(t)
	stop()
	if err := w.heal(t.Context(), n); err != nil {
		t.Error(err)
	}
	if w.stateOf(t, cell) == cellplanev1alpha1.CellStateFailed {
		w.edit(t, n, "rejoin "+cell, cells.Rejoin(cell))
		w.waitStable(t, n)
	}
	if err := w.verify(t.Context()); err != nil {
		t.Errorf("after %s: %v", strings.Join(n.did, "; "), err)
	}
	reported, err := w.reported(cell, began)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s; cut or failed from %v until %v; %d objects were created, %d reported as lost", strings.Join(n.did, "; "), from, until, len(made.acknowledged), len(reported))
	f.checkCreations(t, made, reported)
	if !f.lossless {
		h.lose(reported, from, until)
		h.undelete(from, until, func(key string) bool { return strings.HasPrefix(key, replicatedNamespace+"/") })
	}
	readAll(t, c, h)
	checkHistory(t, c, h)
	deleteAll(t, c)
}

// pause pauses a gateway, if the scenario wants that, and returns what resumes it.
func (f *failover) pause(t *testing.T, w *world, n *nemesis) (resume func()) {
	t.Helper()
	if f.paused == "" {
		return func() {}
	}
	all := w.parts.named(exactly(f.paused))
	for _, p := range all {
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		n.note("pause %s", p.Name())
	}
	resume = sync.OnceFunc(func() {
		for _, p := range all {
			n.note("resume %s: %v", p.Name(), p.Resume())
		}
	})
	t.Cleanup(resume) // also after a failure
	return resume
}

// waitMore waits until more objects have been created.
func (c *creations) waitMore(t *testing.T) {
	t.Helper()
	const enough = 60
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.acknowledged)
	}
	before := count()
	testenv.Eventually(t, "clients are served", func(context.Context) (bool, error) { return count() >= before+enough, nil })
}

// checkCreations checks that nothing is lost that must not be.
func (f *failover) checkCreations(t *testing.T, made *creations, reported map[string]string) {
	t.Helper()
	gone, err := made.gone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wrong []string
	for _, key := range gone {
		name, _, _ := strings.Cut(key, " ")
		if _, known := reported[name]; f.lossless || !known || strings.HasPrefix(key, replicatedNamespace+"/") {
			wrong = append(wrong, key)
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%d of %d acknowledged creations are gone, %d of them against the promise: %s", len(gone), len(made.acknowledged), len(wrong), strings.Join(wrong, ", "))
	}
}

// replaceHubManagers starts hub managers that fail cells over after a time.
func (w *world) replaceHubManagers(t *testing.T, after time.Duration) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := each(ctx, w.parts.named(hubManagers), stop); err != nil {
		t.Fatal(err)
	}
	if err := w.parts.addHubManagers(after); err != nil {
		t.Fatal(err)
	}
	if err := each(ctx, w.parts.named(hubManagers), start); err != nil {
		t.Fatal(err)
	}
}

func (w *world) topology(t *testing.T) *cellplanev1alpha1.CellTopology {
	t.Helper()
	topology := &cellplanev1alpha1.CellTopology{}
	if err := w.hub.Get(t.Context(), types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, topology); err != nil {
		t.Fatal(err)
	}
	return topology
}

func (w *world) stateOf(t *testing.T, cell string) cellplanev1alpha1.CellState {
	t.Helper()
	for _, c := range w.topology(t).Spec.Cells {
		if c.Name == cell {
			return c.State
		}
	}
	return ""
}

func (w *world) waitFailed(t *testing.T, cell string) {
	t.Helper()
	testenv.Eventually(t, cell+" is failed over", func(context.Context) (bool, error) {
		return w.stateOf(t, cell) == cellplanev1alpha1.CellStateFailed, nil
	})
}

// waitRefused waits until the hub manager has refused to fail a cell over, and reports that it is not backed up because it cannot be read; or until it has failed it over.
func (w *world) waitRefused(t *testing.T, cell string) {
	t.Helper()
	testenv.Eventually(t, "the hub manager refuses to fail over "+cell, func(ctx context.Context) (bool, error) {
		if w.stateOf(t, cell) == cellplanev1alpha1.CellStateFailed {
			return true, nil
		}
		object := &cellplanev1alpha1.Cell{}
		if err := w.hub.Get(ctx, types.NamespacedName{Name: cell}, object); err != nil {
			return false, err
		}
		conditions := object.Status.Conditions
		return meta.IsStatusConditionTrue(conditions, "FailoverBlocked") && !meta.IsStatusConditionTrue(conditions, names.CellBackedUp), fmt.Errorf("its conditions are %+v", conditions)
	})
}

func (w *world) edit(t *testing.T, n *nemesis, name string, edit cells.Edit) {
	t.Helper()
	testenv.Eventually(t, name, func(ctx context.Context) (bool, error) {
		err := n.apply(ctx, w.topology(t), name, edit)
		return err == nil, err
	})
}

func (w *world) waitStable(t *testing.T, n *nemesis) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), healWithin)
	defer cancel()
	if err := n.waitStable(ctx); err != nil {
		t.Fatalf("after %s: %v", strings.Join(n.did, "; "), err)
	}
}

// failoverCandidate returns one of at least two cells.
func (w *world) failoverCandidate(t *testing.T, n *nemesis) string {
	t.Helper()
	present := map[string]bool{}
	for _, c := range w.topology(t).Spec.Cells {
		present[c.Name] = true
	}
	if len(present) < 2 {
		name, edit := n.add(present)
		w.edit(t, n, name, edit)
		w.waitStable(t, n)
	}
	all := w.topology(t).Spec.Cells
	return all[n.random.IntN(len(all))].Name
}

// waitBackedUp waits until each cell has a complete backup.
func (w *world) waitBackedUp(t *testing.T) {
	t.Helper()
	asked := time.Now().Truncate(time.Second)
	for _, c := range w.topology(t).Spec.Cells {
		testenv.Eventually(t, c.Name+" is backed up", func(ctx context.Context) (bool, error) {
			cell := &cellplanev1alpha1.Cell{}
			if err := w.hub.Get(ctx, types.NamespacedName{Name: c.Name}, cell); err != nil {
				return false, err
			}
			backup := cell.Status.Backup
			return backup != nil && backup.UpToDateAt != nil && backup.UpToDateAt.After(asked), fmt.Errorf("its status is %+v", backup)
		})
	}
}
