package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/process"
)

// nemesis disturbs a federation. What it does follows from its seed and from what it finds.
type nemesis struct {
	random    *rand.Rand
	hub       client.Client
	processes func() []*process.Process
	// cells are all there are, in the topology or not.
	cells []string
	// kills is set if processes are to be killed and paused, and moves if the topology is to be changed.
	kills, moves bool
	did          []string
}

// spare are processes that are left alone: without its hub a federation goes on, but its changes do not, and the test would wait.
func spare(name string) bool {
	return strings.HasPrefix(name, "federation/") || strings.HasPrefix(name, "cluster-gateway") || strings.HasSuffix(name, "/engine") || strings.HasPrefix(name, "steady")
}

// run disturbs until the context ends, and lets go of everything.
func (n *nemesis) run(ctx context.Context) {
	for ctx.Err() == nil {
		switch what := n.random.IntN(10); {
		case what < 4 && n.moves:
			n.change(ctx)
		case what < 7 && n.kills:
			n.kill()
		case n.kills:
			n.freeze(ctx)
		}
		pause(ctx, time.Duration(300+n.random.IntN(1200))*time.Millisecond)
	}
}

func (n *nemesis) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	n.did = append(n.did, text)
	klog.Info("Nemesis: " + text)
}

func (n *nemesis) victim() *process.Process {
	all := slices.DeleteFunc(n.processes(), func(p *process.Process) bool { return spare(p.Name()) })
	slices.SortFunc(all, func(a, b *process.Process) int { return strings.Compare(a.Name(), b.Name()) })
	return all[n.random.IntN(len(all))]
}

func (n *nemesis) kill() {
	victim := n.victim()
	n.note("kill %s: %v", victim.Name(), victim.Kill())
}

// freeze pauses a process for a while.
func (n *nemesis) freeze(ctx context.Context) {
	victim, length := n.victim(), time.Duration(200+n.random.IntN(3000))*time.Millisecond
	n.note("pause %s for %v: %v", victim.Name(), length, victim.Pause())
	pause(ctx, length)
	n.note("resume %s: %v", victim.Name(), victim.Resume())
}

// change edits the topology: it begins a change, or turns the one under way back.
func (n *nemesis) change(ctx context.Context) {
	var topology cellplanev1alpha1.CellTopology
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := n.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology); err != nil {
		return
	}
	name, edit := n.edit(&topology)
	if edit == nil {
		return
	}
	err := edit(&topology.Spec)
	if err == nil {
		err = n.hub.Update(ctx, &topology)
	}
	n.note("%s in epoch %d: %v", name, topology.Generation, err)
}

func (n *nemesis) edit(topology *cellplanev1alpha1.CellTopology) (string, cells.Edit) {
	if cells.Running(&topology.Spec) != "" {
		if n.random.IntN(4) > 0 {
			return "", nil // most changes come to their ends
		}
		return "turn back", cells.TurnBack
	}
	present := map[string]bool{}
	for _, cell := range topology.Spec.Cells {
		present[cell.Name] = true
	}
	cell := n.cells[n.random.IntN(len(n.cells))]
	switch {
	case !present[cell]:
		return "add " + cell, cells.Add(cell, 1)
	case len(present) > 2 || len(present) > 1 && n.random.IntN(2) == 0:
		return "drain " + cell, cells.Drain(cell)
	default:
		weight := int32(1 + n.random.IntN(4))
		return fmt.Sprintf("weigh %s %d", cell, weight), cells.Weight(cell, weight)
	}
}

// settle waits until no change is under way.
func (n *nemesis) settle(ctx context.Context) error {
	var topology cellplanev1alpha1.CellTopology
	for {
		err := n.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology)
		if err == nil && cells.Running(&topology.Spec) == "" && topology.Status.Phase == cellplanev1alpha1.TopologyStable && topology.Status.ObservedGeneration == topology.Generation {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the topology does not settle: %w: %+v", ctx.Err(), topology.Status)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// scheme knows the topology.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, cellplanev1alpha1.AddToScheme(s)
}
