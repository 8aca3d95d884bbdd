package controllermodel

import "math/rand/v2"

// CloneSet is a CloneSet, updated in place or by recreating pods.
type CloneSet struct {
	workload
	inPlace  bool
	existing []*pod // terminating ones are marked for deletion, and serve until then
	created  int
	current  string
}

// NewCloneSet returns a CloneSet that does not exist yet.
func NewCloneSet(inPlace bool) *CloneSet { return &CloneSet{inPlace: inPlace} }

// Apply stores a new spec.
func (c *CloneSet) Apply(spec Spec) {
	if c.generation == 0 {
		c.current = spec.Revision
	}
	c.apply(spec)
}

// Count counts the pods.
func (c *CloneSet) Count() Count { return c.count(c.existing, true) }

// Pod is a pod of a CloneSet. A marked one is going to be deleted, and serves until then.
type Pod struct {
	ID                int
	Revision          string
	Available, Marked bool
}

// Pods returns the pods that exist.
func (c *CloneSet) Pods() []Pod {
	pods := make([]Pod, len(c.existing))
	for i, p := range c.existing {
		pods[i] = Pod{ID: p.id, Revision: p.revision, Available: p.available, Marked: p.terminating}
	}
	return pods
}

// Step is one pass of the controller, or a pod that becomes available.
func (c *CloneSet) Step(random *rand.Rand) {
	if c.generation == 0 {
		return
	}
	if random.IntN(3) == 0 {
		become(random, c.existing)
		return
	}
	c.pass()
}

// Run lets everything happen.
func (c *CloneSet) Run() {
	if c.generation == 0 {
		return
	}
	become(nil, c.existing)
	c.pass()
	c.writeStatus()
}

// Fail has a pod fail.
func (c *CloneSet) Fail(random *rand.Rand) {
	if failed, gone := c.fail(random, c.existing); gone {
		c.existing = without(c.existing, failed)
	}
}

// FailAll has all pods fail.
func (c *CloneSet) FailAll() { c.failAll(c.existing) }

// Unstick does nothing.
func (c *CloneSet) Unstick() {}

// pass is one pass of the controller: it scales, or else updates. The status is that before the pass.
func (c *CloneSet) pass() {
	c.writeStatus()
	if !c.scale() && !c.spec.Paused {
		c.update()
	}
}

func (c *CloneSet) writeStatus() {
	c.status = Status{ObservedGeneration: c.generation, Pods: len(c.existing)}
	for _, p := range c.existing {
		if p.available {
			c.status.Available++
		}
		if p.revision == c.spec.Revision {
			c.status.Updated++
		}
		if p.terminating {
			c.status.Terminating++
		}
	}
	c.status.Remaining = min(c.status.Pods-c.status.Updated, max(0, c.spec.Replicas-c.spec.Partition-c.status.Updated))
	if c.status.Updated == c.status.Pods && c.status.Available == c.spec.Replicas && c.status.Pods == c.spec.Replicas {
		c.current = c.spec.Revision
	}
}

// diff is what is missing and what is too many.
type diff struct {
	old, updated, doomed, doomedOld, unavailable int
	// toUpdate is how many old pods should become new ones.
	toUpdate, surge int
}

func (c *CloneSet) diff() diff {
	var d diff
	partition := min(c.spec.Partition, c.spec.Replicas)
	for _, p := range c.existing {
		if p.revision == c.spec.Revision {
			d.updated++
		} else {
			d.old++
		}
		switch {
		case p.terminating && p.revision != c.spec.Revision:
			d.doomed++
			d.doomedOld++
		case p.terminating:
			d.doomed++
		case !p.available:
			d.unavailable++
		}
	}
	tooOld, missing := max(0, d.old-partition), max(0, c.spec.Replicas-partition-d.updated)
	d.toUpdate = min(tooOld, missing)
	if c.spec.Surge > 0 && !c.spec.Paused {
		forDoomed := min(max(0, d.unavailable+d.doomed-c.spec.Unavailable), d.doomed)
		d.surge = min(c.spec.Surge, max(forDoomed, d.toUpdate))
	}
	return d
}

// scale creates or removes pods, and reports whether it did.
func (c *CloneSet) scale() bool {
	d := c.diff()
	wanted := c.spec.Replicas + d.surge
	if missing := wanted - len(c.existing); missing > 0 {
		asBefore := max(0, min(c.spec.Partition, c.spec.Replicas)-d.old)
		for i := range missing {
			revision := c.spec.Revision
			if i < asBefore {
				revision = c.current
			}
			c.created++
			c.existing = append(c.existing, &pod{id: c.created, revision: revision, restored: i < asBefore && c.current == c.spec.Revision})
		}
		return true
	}
	limit := max(0, c.spec.Unavailable+len(c.existing)-c.spec.Replicas-d.unavailable)
	if c.removeMarked(limit) {
		return true
	}
	surplus := len(c.existing) - d.doomed - wanted
	if surplus <= 0 || d.doomed > 0 {
		return false
	}
	return c.remove(c.surplus(surplus, min(surplus, max(0, d.old-min(c.spec.Partition, c.spec.Replicas)))), limit)
}

// removeMarked removes pods that are marked for deletion, and reports whether it did. The limit does not consider marked pods that are unavailable, although they are
// removed as well: then more available pods go than maxUnavailable allows.
func (c *CloneSet) removeMarked(limit int) bool {
	var marked []*pod
	down, up := 0, 0
	for _, p := range c.existing {
		switch {
		case !p.terminating:
			continue
		case p.available:
			up++
		default:
			down++
		}
		marked = append(marked, p)
	}
	c.failed += max(0, min(up, limit)-max(0, limit-down))
	return c.remove(marked, limit)
}

// surplus chooses pods to remove: so many, of them so many old ones.
func (c *CloneSet) surplus(all, ofOld int) []*pod {
	var old, updated []*pod
	for _, p := range c.existing {
		if p.revision == c.spec.Revision {
			updated = append(updated, p)
		} else {
			old = append(old, p)
		}
	}
	chosen := unavailableFirst(old)[:ofOld]
	return append(chosen, unavailableFirst(updated)[:min(len(updated), all-ofOld)]...)
}

// remove removes unavailable pods, and available ones up to a limit.
func (c *CloneSet) remove(pods []*pod, limit int) bool {
	removed := false
	for _, p := range pods {
		if p.available {
			if limit == 0 {
				continue
			}
			limit--
		}
		c.existing = without(c.existing, p)
		removed = true
	}
	return removed
}

// update changes old pods, as far as maxUnavailable allows.
func (c *CloneSet) update() {
	d := c.diff()
	down := 0
	for _, p := range c.existing {
		if !p.available {
			down++
		}
	}
	limit := c.spec.Unavailable + len(c.existing) - c.spec.Replicas
	var old []*pod
	for _, p := range c.existing {
		if p.revision != c.spec.Revision && !p.terminating {
			old = append(old, p)
		}
	}
	for _, p := range unavailableFirst(old)[:min(len(old), max(0, d.toUpdate-d.doomedOld))] {
		if p.available {
			if down >= limit {
				return
			}
			down++
		}
		if c.inPlace {
			p.revision, p.available, p.restored = c.spec.Revision, false, false
		} else {
			p.terminating = true
		}
	}
}
