package rollout

import (
	"fmt"
	"slices"

	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
)

// setBudget draws surge, unavailable and partition.
func (w *world) setBudget() {
	b := &w.bounds
	b.Surge, b.Unavailable, b.Partition = w.random.IntN(3), w.random.IntN(3), 0
	if w.kind == StatefulSet {
		b.Surge, b.Unavailable = 0, max(1, b.Unavailable)
	}
	if w.kind == InterpretedInPlace {
		b.Surge = 0
	}
	if b.Surge+b.Unavailable == 0 {
		b.Unavailable = 1
	}
	if w.faults.partitioned || w.kind.partitions() && w.random.IntN(2) == 0 {
		b.Partition = w.random.IntN(b.Replicas + 1)
	}
	w.logf("budget %+v", *b)
	w.changed()
}

// changed is called after the bounds have changed.
func (w *world) changed() {
	w.mostPods = max(w.mostPods, w.bounds.maxPods())
	w.leastAvailable = min(w.leastAvailable, w.bounds.minAvailable())
	w.mostUpdated = max(w.mostUpdated, w.bounds.maxUpdated())
}

// event is something that happens to the federation from outside. What stops rollouts does not last long.
func (w *world) event(m *member) {
	if w.random.IntN(2) == 0 && w.heal() {
		return
	}
	switch w.random.IntN(15) {
	case 14:
		m.held = !m.held
		w.logf("%s held: %v", m.name, m.held)
	case 0, 1, 2, 3:
		w.update(w.random.IntN(6) == 0)
	case 4:
		w.previous, w.revision = w.revision, w.previous
		if w.revision == "" {
			w.previous, w.revision = "", w.previous
		}
		w.logf("undo to %s", w.revision)
		w.mostUpdated = unlimited
	case 5:
		w.pause(!w.paused)
	case 6, 7:
		w.setBudget()
	case 8, 9:
		w.move(m, w.anyMember())
	case 10:
		w.scale(m, w.random.IntN(6))
	case 11:
		w.cut(m, !m.cutOff)
	case 12:
		if w.fails() {
			w.logf("a pod of %s fails", m.name)
			m.workload.Fail(w.random)
		}
	case 13:
		if w.fails() {
			w.crash(m)
		}
	}
}

// heal ends something that stops rollouts, and reports whether there was anything.
func (w *world) heal() bool {
	if w.paused {
		w.pause(false)
		return true
	}
	for _, m := range w.members {
		switch {
		case m.held:
			m.held = false
			return true
		case m.cutOff:
			w.cut(m, false)
			return true
		case m.dead:
			w.crash(m)
			return true
		}
	}
	return false
}

// open opens the entry of a member, or closes it.
func (w *world) open(m *member) {
	m.open = !m.open
	w.logf("the entry in %s is open: %v", m.name, m.open)
}

func (w *world) pause(paused bool) {
	w.paused = paused
	w.logf("paused %v", w.paused)
}

func (w *world) cut(m *member, off bool) {
	m.cutOff = off
	w.logf("%s cut off: %v", m.name, m.cutOff)
	w.back(m)
}

// fails reports whether pods fail by themselves in this run. In half of the runs they do not, and the bounds are exact.
func (w *world) fails() bool { return len(w.members)%2 == 0 }

func (w *world) update(bad bool) {
	w.versions++
	w.previous, w.revision = w.revision, fmt.Sprintf("v%d", w.versions)
	if bad {
		w.revision = controllermodel.Bad + w.revision
	}
	w.logf("update to %s", w.revision)
	w.mostUpdated = unlimited
}

// move has the scheduler move replicas.
func (w *world) move(from, to *member) {
	if from.share == 0 || to.lost || from == to {
		return
	}
	n := 1 + w.random.IntN(from.share)
	from.share, to.share = from.share-n, to.share+n
	w.logf("move %d from %s to %s", n, from.name, to.name)
}

func (w *world) scale(m *member, share int) {
	if m.lost {
		return
	}
	w.bounds.Replicas += share - m.share
	m.share = share
	w.bounds.Partition = min(w.bounds.Partition, w.bounds.Replicas)
	w.bounds.Unavailable = min(w.bounds.Unavailable, max(1, w.bounds.Replicas))
	w.logf("scale %s to %d, in all %d", m.name, share, w.bounds.Replicas)
	w.changed()
}

// crash has a whole cluster fail. After a while the federation gives it up.
func (w *world) crash(m *member) {
	switch {
	case !m.dead:
		w.logf("%s fails", m.name)
		m.dead = true
		m.workload.FailAll()
	case !m.lost && w.random.IntN(2) == 0:
		if i := slices.IndexFunc(w.members, func(other *member) bool { return other != m && !other.dead }); i >= 0 {
			w.logf("%s is given up, its %d go to %s", m.name, m.share, w.members[i].name)
			w.members[i].share += m.share
			m.share, m.lost = 0, true
			// What it had is missing until the others have it.
			w.leastAvailable = min(w.leastAvailable, w.bounds.minAvailable()) - w.bounds.Replicas
		}
	default:
		m.dead = false
		w.logf("%s works again", m.name)
		w.back(m)
	}
}

// back has a cluster count again, if it was given up and now answers.
func (w *world) back(m *member) {
	if m.lost && !m.cutOff && !m.dead {
		m.lost = false
		w.mostPods += w.ledger[m.name].Loosened.Pods + m.workload.Count().Pods
		w.mostUpdated = unlimited
	}
}
