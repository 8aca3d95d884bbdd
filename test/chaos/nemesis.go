package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv/cut"
	"github.com/cellplane/cellplane/internal/testenv/wallclock"
)

// nemesis disturbs a federation. Its actions depend on its seed and on the state of the federation.
type nemesis struct {
	random    *rand.Rand
	hub       client.Client
	processes func() []*process.Process
	// cells are all cells, in the topology or not.
	cells []string
	links *links
	// kills is set if processes are to be killed and paused, moves if the topology is to be changed, cuts if links are to be cut, and clocks
	// if clocks are to be set.
	kills, moves, cuts, clocks bool
	// longest is the longest pause of a hub manager. If it exceeds the lease, another one takes over.
	longest time.Duration

	// stopping is held while a process is stopped: setting its clock would resume it.
	stopping sync.Mutex

	mu    sync.Mutex
	did   []string
	ends  []*time.Timer  // of cuts and wrong clocks
	count map[string]int // by name of the disturbance
}

// disturbance is a kind of action. do returns an error if it is not possible now.
type disturbance struct {
	name string
	do   func(ctx context.Context) error
}

// victims are the kinds of processes that are killed and paused, by their names. Engines have no state of their own. The gateway of the
// steady informer is spared, so that the informer has no reason to list again.
var victims = map[string]*regexp.Regexp{
	"gateway":         regexp.MustCompile(`^gateway(-2)?$`),
	"hub manager":     hubManagers,
	"cell API server": cellServers,
	"cell store":      cellStores,
	"hub API server":  hubServer,
	"hub store":       hubStore,
}

// disturbances are all that the nemesis does.
func (n *nemesis) disturbances() []disturbance {
	var all []disturbance
	if n.moves {
		all = append(all,
			disturbance{"add", func(ctx context.Context) error { return n.either(ctx, n.add, n.drain) }},
			disturbance{"drain", func(ctx context.Context) error { return n.either(ctx, n.drain, n.add) }},
			disturbance{"weigh", func(ctx context.Context) error { return n.edit(ctx, n.weigh) }},
			disturbance{"turn back", n.turnBack},
		)
	}
	if n.kills {
		for _, kind := range slices.Sorted(maps.Keys(victims)) {
			all = append(all,
				disturbance{"kill " + kind, func(context.Context) error { return n.kill(kind) }},
				disturbance{"pause " + kind, func(ctx context.Context) error { return n.freeze(ctx, kind) }},
			)
		}
	}
	if n.cuts {
		for _, name := range slices.Sorted(maps.Keys(ways)) {
			all = append(all, disturbance{"cut " + name, func(context.Context) error { return n.cutLink(ways[name]) }})
		}
		all = append(all,
			disturbance{"cut off a gateway or hub manager", func(context.Context) error { return n.cutOffProcess() }},
			disturbance{"cut off a cell", func(context.Context) error { n.cut("everything from a cell", n.links.around(n.cell())); return nil }},
			disturbance{"cut off a gateway with a cell", func(context.Context) error {
				n.cut("a gateway with a cell from the rest", n.links.split(n.process(gateways), n.cell()))
				return nil
			}},
		)
	}
	if n.clocks {
		for _, kind := range slices.Sorted(maps.Keys(victims)) {
			all = append(all, disturbance{"set the clock of a " + kind, func(context.Context) error { return n.setClock(kind) }})
		}
	}
	return all
}

// cell returns a random cell.
func (n *nemesis) cell() string { return n.cells[n.random.IntN(len(n.cells))] }

// process returns a random process.
func (n *nemesis) process(name *regexp.Regexp) string {
	all := n.links.between(name, anything)
	return all[n.random.IntN(len(all))].From
}

// cutLink cuts one link of a kind.
func (n *nemesis) cutLink(w way) error {
	all := n.links.between(w.from, w.to)
	if len(all) == 0 {
		return errNotNow // the process is down
	}
	n.cut("a link", []cut.Link{all[n.random.IntN(len(all))]})
	return nil
}

// cutOffProcess cuts a gateway or a hub manager off from everything.
func (n *nemesis) cutOffProcess() error {
	all := append(n.links.between(gateways, anything), n.links.between(hubManagers, anything)...)
	if len(all) == 0 {
		return errNotNow
	}
	process := all[n.random.IntN(len(all))].From
	n.cut(process+" from everything", n.links.between(exactly(process), anything))
	return nil
}

// cut cuts links for a while. It does not wait, so that cuts overlap with each other and with other disturbances.
func (n *nemesis) cut(what string, all []cut.Link) {
	modes := cut.Modes()
	fault := cut.Fault{Mode: modes[n.random.IntN(len(modes))], Delay: time.Duration(20+n.random.IntN(1000)) * time.Millisecond}
	length := time.Duration(200+n.random.IntN(6000)) * time.Millisecond
	n.note("cut %s: %v, %v for %v", what, all, fault, length)
	n.links.set(all, fault)
	end := time.AfterFunc(length, func() {
		n.links.set(all, cut.Fault{Mode: cut.Pass})
		n.note("the cut of %s has ended", what)
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = append(n.ends, end)
}

// endFaults ends all cuts, and sets all clocks right.
func (n *nemesis) endFaults() error {
	n.mu.Lock()
	for _, end := range n.ends {
		end.Stop()
	}
	n.mu.Unlock()
	n.links.Heal()
	var all []error
	for _, p := range n.processes() {
		all = append(all, n.shift(p, 0))
	}
	return errors.Join(all...)
}

// run repeats all disturbances in random order for at least some time, and each at least once. If the context ends before, it returns
// those that did not happen.
func (n *nemesis) run(ctx context.Context, atLeast time.Duration) (missing []string) {
	began := time.Now()
	n.count = map[string]int{}
	for first := true; first || time.Since(began) < atLeast; first = false {
		waiting := n.disturbances()
		n.random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		for len(waiting) > 0 && (first || time.Since(began) < atLeast) {
			next := waiting[0]
			waiting = waiting[1:]
			if err := next.do(ctx); err != nil {
				waiting = append(waiting, next) // another change is running, or the process is down
			} else {
				n.count[next.name]++
			}
			pause(ctx, time.Duration(200+n.random.IntN(800))*time.Millisecond)
			if ctx.Err() != nil {
				for _, d := range waiting {
					missing = append(missing, d.name)
				}
				return missing
			}
		}
	}
	return nil
}

func (n *nemesis) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	n.mu.Lock()
	n.did = append(n.did, text)
	n.mu.Unlock()
	klog.Background().Info("nemesis", "action", text)
}

// summary returns how often each disturbance happened.
func (n *nemesis) summary() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n.count)) {
		parts = append(parts, fmt.Sprintf("%s %d×", name, n.count[name]))
	}
	return strings.Join(parts, ", ")
}

func (n *nemesis) victim(kind string) *process.Process {
	all := slices.DeleteFunc(n.processes(), func(p *process.Process) bool { return !victims[kind].MatchString(p.Name()) })
	slices.SortFunc(all, func(a, b *process.Process) int { return strings.Compare(a.Name(), b.Name()) })
	return all[n.random.IntN(len(all))]
}

// kill is kill -9.
func (n *nemesis) kill(kind string) error {
	victim := n.victim(kind)
	if err := victim.Kill(); err != nil {
		return err
	}
	n.note("kill %s", victim.Name())
	return nil
}

// freeze pauses a process for a while.
func (n *nemesis) freeze(ctx context.Context, kind string) error {
	victim, length := n.victim(kind), time.Duration(200+n.random.IntN(3000))*time.Millisecond
	if kind == "hub manager" && n.longest > 0 && n.random.IntN(2) == 0 {
		length = n.longest
	}
	if kind == "gateway" {
		length *= 2 // also longer than its writer lease
	}
	n.stopping.Lock()
	defer n.stopping.Unlock()
	if err := victim.Pause(); err != nil {
		return err
	}
	n.note("pause %s for %v", victim.Name(), length)
	pause(ctx, length)
	n.note("resume %s: %v", victim.Name(), victim.Resume())
	return nil
}

// jumps are by how much a clock is set wrong, to either side: less and more than leases and windows last, and by so much that certificates
// seem not to be valid yet.
var jumps = []time.Duration{2 * time.Second, 15 * time.Second, 2 * time.Minute, 3 * time.Hour}

// farthestBack is how far the clocks of gateways are set back at most. Certificates are valid from five minutes before they are issued; a gateway whose clock
// is set back further refuses all users with 401. Whoever else refuses a certificate must not cause a 401.
const farthestBack = 4 * time.Minute

// setClock sets the wall clock of a process, and sets it right again after a while.
func (n *nemesis) setClock(kind string) error {
	victim, offset, length := n.victim(kind), jumps[n.random.IntN(len(jumps))], time.Duration(200+n.random.IntN(6000))*time.Millisecond
	if n.random.IntN(2) == 0 {
		offset = -offset
	}
	if kind == "gateway" {
		offset = max(offset, -farthestBack)
	}
	if err := n.shift(victim, offset); err != nil {
		return err
	}
	n.note("set the clock of %s by %v for %v", victim.Name(), offset, length)
	end := time.AfterFunc(length, func() { n.note("set the clock of %s right: %v", victim.Name(), n.shift(victim, 0)) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = append(n.ends, end)
	return nil
}

// shift sets the wall clock of a process. One that is down starts with the right time.
func (n *nemesis) shift(p *process.Process, offset time.Duration) error {
	n.stopping.Lock()
	defer n.stopping.Unlock()
	pid := p.PID()
	if pid == 0 || !wallclock.Supported {
		return nil
	}
	if err := wallclock.Shift(pid, offset); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.Name(), err)
	}
	return nil
}

var (
	// errNotNow means that another change must end first.
	errNotNow = errors.New("not now")
	// errNotPossible means that there is no cell for the change.
	errNotPossible = errors.New("not possible")
)

// choice returns a possible change, nil if there is none.
type choice func(present map[string]bool) (name string, edit cells.Edit)

// either begins a change. If it is not possible, it begins another one that makes it possible: to add a cell, one must have left.
func (n *nemesis) either(ctx context.Context, wanted, other choice) error {
	err := n.edit(ctx, wanted)
	if errors.Is(err, errNotPossible) {
		return errors.Join(err, n.edit(ctx, other))
	}
	return err
}

// edit begins a change, if none is running.
func (n *nemesis) edit(ctx context.Context, choose choice) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var topology cellplanev1alpha1.CellTopology
	if err := n.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology); err != nil {
		return err
	}
	present := map[string]bool{}
	for _, cell := range topology.Spec.Cells {
		present[cell.Name] = true
	}
	if cells.Running(&topology.Spec) != "" {
		return errNotNow
	}
	name, edit := choose(present)
	if edit == nil {
		return errNotPossible
	}
	return n.apply(ctx, &topology, name, edit)
}

func (n *nemesis) apply(ctx context.Context, topology *cellplanev1alpha1.CellTopology, name string, edit cells.Edit) error {
	if err := edit(&topology.Spec); err != nil {
		return err
	}
	if err := n.hub.Update(ctx, topology); err != nil {
		return err
	}
	n.note("%s in epoch %d", name, topology.Generation)
	return nil
}

func (n *nemesis) add(present map[string]bool) (string, cells.Edit) {
	absent := slices.DeleteFunc(slices.Clone(n.cells), func(name string) bool { return present[name] })
	if len(absent) == 0 {
		return "", nil
	}
	cell := absent[n.random.IntN(len(absent))]
	return "add " + cell, cells.Add(cell, 1)
}

func (n *nemesis) drain(present map[string]bool) (string, cells.Edit) {
	if len(present) < 2 {
		return "", nil
	}
	all := slices.Sorted(maps.Keys(present))
	cell := all[n.random.IntN(len(all))]
	return "drain " + cell, cells.Drain(cell)
}

func (n *nemesis) weigh(present map[string]bool) (string, cells.Edit) {
	all := slices.Sorted(maps.Keys(present))
	cell, weight := all[n.random.IntN(len(all))], int32(1+n.random.IntN(4))
	return fmt.Sprintf("weigh %s %d", cell, weight), cells.Weight(cell, weight)
}

// turnBack rolls back the running change, or one that it begins.
func (n *nemesis) turnBack(ctx context.Context) error {
	if err := n.edit(ctx, n.weigh); err == nil {
		pause(ctx, time.Duration(n.random.IntN(1500))*time.Millisecond) // somewhere between its begin and its end
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var topology cellplanev1alpha1.CellTopology
	if err := n.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology); err != nil {
		return err
	}
	return n.apply(ctx, &topology, "turn back", cells.Reverse)
}

// leaveTwo adds a cell if only one is left: nothing durable can be deleted otherwise.
func (n *nemesis) leaveTwo(ctx context.Context) error {
	err := n.edit(ctx, func(present map[string]bool) (string, cells.Edit) {
		if len(present) > 1 {
			return "", nil
		}
		return n.add(present)
	})
	if errors.Is(err, errNotPossible) {
		return nil
	}
	if err != nil {
		return err
	}
	return n.waitStable(ctx)
}

// waitStable waits until no change is running.
func (n *nemesis) waitStable(ctx context.Context) error {
	var topology cellplanev1alpha1.CellTopology
	for {
		err := n.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology)
		if err == nil && cells.Running(&topology.Spec) == "" && topology.Status.Phase == cellplanev1alpha1.TopologyStable && topology.Status.ObservedGeneration == topology.Generation {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting until the topology is stable: %w: %+v", ctx.Err(), topology.Status)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// scheme has the kinds of the topology.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(cellplanev1alpha1.AddToScheme(s), corev1.AddToScheme(s))
}
