package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
)

// world is a federation: a cell that stores the ledger and Works, engines that may be outdated, and members with stock controllers.
// Each action is one step of one of them. After every step the pods that exist are compared with the bounds.
type world struct {
	random *rand.Rand
	rules  rules
	faults faults
	kind   Kind

	// What users and the scheduler want.
	bounds   Bounds
	revision string
	previous string
	paused   bool
	keep     bool
	versions int

	// What the cell stores.
	ledger  map[string]Entry
	version int
	works   map[string]storedWork

	members []*member
	engines []*engine
	late    []lateWrite

	// events is how many steps out of a thousand are events.
	events int

	// What holds: the bounds or, after a change that breaks them, what held before, until the planner reports that they hold again.
	mostPods, leastAvailable, mostUpdated int

	trace []string
}

// unlimited is more pods than there are.
const unlimited = 1 << 30

// faults breaks parts of the protocol around the planner.
type faults struct {
	// noLedger checks the versions of Works only, so that two engines can plan at the same time.
	noLedger bool
	// anyOrder lets an outdated engine replace a newer command in a member by an older one.
	anyOrder bool
	// partitioned is no fault: all runs are of CloneSets with a partition.
	partitioned bool
	// statefulSets is no fault: all runs are of StatefulSets.
	statefulSets bool
	// interpreted is no fault: all runs are of kinds that an interpreter describes.
	interpreted bool
	// entries is no fault: people take copies out of the federation's hands.
	entries bool
}

type storedWork struct {
	entry   Entry
	version int
}

// lateWrite is a write to a member that has not arrived yet.
type lateWrite struct {
	member *member
	entry  Entry
}

type member struct {
	name     string
	share    int
	workload controllermodel.Workload
	// What the object carries.
	seq      int64
	revision string
	replicas int

	cutOff, dead, lost bool
	failing, held      bool
	// open members take no command: their entry is open.
	open bool
	// picky members refuse bad revisions, in the command with the number refused.
	picky   bool
	refused int64
	version int64
	history []Observation
}

// engine is a process that plans. It sees the store and the members with any delay.
type engine struct {
	ledger   map[string]Entry
	version  int
	works    map[string]storedWork
	observed map[string]*Observation
}

func newWorld(seed uint64, rules rules, faults faults) *world {
	random := rand.New(rand.NewPCG(seed, 1))
	w := &world{random: random, rules: rules, faults: faults, kind: Kind(random.IntN(3)), events: 5 + random.IntN(40), keep: random.IntN(4) == 0, ledger: map[string]Entry{}, works: map[string]storedWork{}}
	switch {
	case faults.partitioned:
		w.kind = CloneSet
	case faults.statefulSets:
		w.kind = StatefulSet
	case faults.interpreted:
		w.kind = []Kind{Interpreted, InterpretedInPlace}[seed%2]
	}
	inOrder, total := random.IntN(2) == 0, 0
	for i := range 1 + random.IntN(5) {
		m := &member{name: fmt.Sprintf("m%d", i), share: random.IntN(6), picky: random.IntN(4) == 0}
		total += m.share
		switch w.kind {
		case Deployment, Interpreted:
			m.workload = controllermodel.NewDeployment()
		case StatefulSet:
			m.workload = controllermodel.NewStatefulSet(!inOrder, seed%4 < 2)
		case CloneSet:
			m.workload = controllermodel.NewCloneSet(inOrder)
		default:
			m.workload = controllermodel.NewCloneSet(true)
		}
		w.members = append(w.members, m)
	}
	for range 2 {
		w.engines = append(w.engines, &engine{})
		w.restart(w.engines[len(w.engines)-1])
	}
	w.revision, w.versions = "v1", 1
	w.bounds.Replicas = total
	w.setBudget()
	w.mostPods, w.leastAvailable, w.mostUpdated = w.bounds.maxPods(), 0, w.bounds.maxUpdated()
	return w
}

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// restart ends an engine's process; the next one knows nothing but the store.
func (w *world) restart(e *engine) {
	*e = engine{observed: map[string]*Observation{}}
	w.read(e)
}

func (w *world) read(e *engine) {
	e.ledger, e.version, e.works = maps.Clone(w.ledger), w.version, maps.Clone(w.works)
}

func (w *world) input(e *engine) Input {
	in := Input{Kind: w.kind, Bounds: w.bounds, Revision: w.revision, Previous: w.previous, Paused: w.paused, KeepAvailable: w.keep}
	for _, m := range w.members {
		hold := ""
		if m.held {
			hold = "held"
		}
		c := Cluster{
			Name: m.name, Share: m.share, Chosen: w.keep, Entry: e.ledger[m.name], Observed: e.observed[m.name], Unreachable: m.cutOff || m.dead, Lost: m.lost, Failing: m.failing,
			Refused: m.refused == e.ledger[m.name].Seq, Hold: hold,
		}
		if m.open && m.seq > 0 {
			c.Taken = &Taken{Replicas: m.replicas, Newest: m.revision == w.revision, Differs: m.seq != c.Entry.Seq}
		}
		in.Clusters = append(in.Clusters, c)
	}
	return in
}

// plan plans and stores the ledger, unless another engine has stored one in between.
func (w *world) plan(e *engine) Result {
	result := plan(w.input(e), w.rules)
	if w.version != e.version && !w.faults.noLedger {
		w.read(e)
		return result
	}
	next := map[string]Entry{}
	for _, d := range result.Decisions {
		if d.Entry.Seq > 0 {
			next[d.Name] = d.Entry
		}
		if d.Commanded {
			if o := e.observed[d.Name]; len(d.Entry.Revisions) == 1 || o != nil && o.Seq == 0 {
				w.mostUpdated = max(w.mostUpdated, result.Sums.Updated) // scaling and creating have no other revision to offer
			}
			w.logf("command %s #%d %+v -> %+v (%s)", d.Name, d.Entry.Seq, d.Entry.Command, d.Entry.Loosened, d.Reason)
		}
		if d.Commanded || !w.faults.noLedger {
			w.ledger[d.Name] = d.Entry
		}
	}
	w.version++
	e.ledger, e.version = next, w.version
	sums := result.Sums
	if sums.Pods <= w.bounds.maxPods() {
		w.mostPods = w.bounds.maxPods()
	}
	switch {
	case sums.Available >= w.bounds.minAvailable():
		w.leastAvailable = w.bounds.minAvailable()
	case w.members[0].failing:
		w.leastAvailable = min(w.leastAvailable, sums.Available) // pods that failed may be given up
	}
	switch {
	case w.bounds.Partition == 0:
		w.mostUpdated = unlimited
	case sums.Updated <= w.bounds.maxUpdated():
		w.mostUpdated = w.bounds.maxUpdated()
	}
	return result
}

// writeWork stores the Work of one cluster, as the engine knows the ledger.
func (w *world) writeWork(e *engine, m *member) {
	entry, now := e.ledger[m.name], e.works[m.name]
	if entry.Seq <= now.entry.Seq {
		return
	}
	if now.version != w.works[m.name].version {
		w.read(e)
		return
	}
	w.works[m.name] = storedWork{entry, now.version + 1}
	e.works[m.name] = w.works[m.name]
}

// deliver applies a Work, as the engine knows it, to the member: now, or late.
func (w *world) deliver(e *engine, m *member, late bool) {
	entry := e.works[m.name].entry
	if entry.Seq == 0 || m.cutOff || m.dead {
		return
	}
	if late {
		w.late = append(w.late, lateWrite{m, entry})
		return
	}
	w.write(m, entry)
}

// write is a write to the member. One that carries an older command than the object is refused.
func (w *world) write(m *member, entry Entry) {
	if m.cutOff || m.dead || m.open || entry.Seq == m.seq || entry.Seq < m.seq && !w.faults.anyOrder {
		return
	}
	c := entry.Command
	if m.picky && strings.HasPrefix(c.Revision, controllermodel.Bad) {
		m.refused = entry.Seq
		return
	}
	m.seq = entry.Seq
	w.logf("deliver %s #%d", m.name, m.seq)
	m.revision, m.replicas = c.Revision, c.Replicas
	m.workload.Apply(controllermodel.Spec{
		Replicas: c.Replicas, Surge: c.Surge, Unavailable: c.Unavailable, Partition: c.Partition, Revision: c.Revision, Paused: c.Paused,
	})
}

// arrive has one of the late writes arrive.
func (w *world) arrive() {
	if len(w.late) > 0 {
		i := w.random.IntN(len(w.late))
		w.write(w.late[i].member, w.late[i].entry)
		w.late = slices.Delete(w.late, i, i+1)
	}
}

// show has a watch of the member show its object, if it has changed.
func (m *member) show() {
	status := m.workload.Status()
	shown := Observation{
		Version: m.version, Seq: m.seq, Revision: m.revision, Current: status.ObservedGeneration == m.workload.Generation(),
		Pods: status.Pods, Terminating: status.Terminating, Available: status.Available, Updated: status.Updated, Remaining: status.Remaining,
	}
	if len(m.history) == 0 || m.history[len(m.history)-1] != shown {
		m.version++
		shown.Version = m.version
		m.history = append(m.history[max(0, len(m.history)-3):], shown)
	}
}

// observe brings an observation to an engine: the newest, or an earlier one.
func (w *world) observe(e *engine, m *member, age int) {
	if m.cutOff || m.dead || len(m.history) == 0 {
		return
	}
	o := m.history[max(0, len(m.history)-1-age)]
	e.observed[m.name] = &o
}

func (w *world) anyMember() *member { return w.members[w.random.IntN(len(w.members))] }
func (w *world) anyEngine() *engine { return w.engines[w.random.IntN(len(w.engines))] }

// some does something for about half of the members.
func (w *world) some(do func(*member)) {
	for _, m := range w.members {
		if w.random.IntN(2) == 0 {
			do(m)
		}
	}
}

// act is one random step.
func (w *world) act() {
	e := w.anyEngine()
	switch n := w.random.IntN(1000); {
	case n < w.events && w.faults.entries && w.random.IntN(3) == 0:
		w.open(w.anyMember())
	case n < w.events:
		w.event(w.anyMember())
	case n < 450:
		if m := w.anyMember(); !m.dead {
			m.workload.Step(w.random)
		}
	case n < 600:
		w.some(func(m *member) { w.observe(e, m, max(0, w.random.IntN(6)-3)) })
	case n < 700:
		w.some(func(m *member) { w.deliver(e, m, w.random.IntN(4) == 0) })
	case n < 720:
		w.arrive()
	case n < 820:
		w.some(func(m *member) { w.writeWork(e, m) })
	case n < 940:
		w.plan(e)
	case n < 997:
		w.read(e)
	default:
		w.logf("restart of an engine")
		w.restart(e)
	}
	for _, m := range w.members {
		if !m.cutOff && !m.dead {
			m.show()
		}
	}
}
