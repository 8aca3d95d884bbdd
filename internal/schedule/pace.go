package schedule

import (
	"slices"
	"time"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// move moves replicas out of drained sites, and back from elastic sites when other sites have capacity. It stays
// within the pace and moves only while enough replicas are ready.
func (c *cycle) move(steps [][]*candidate) {
	if c.sites == nil || c.request.Fresh {
		return
	}
	all := slices.Concat(steps...)
	if drain := c.sites.Drain; drain != nil {
		c.moveFrom(all, c.draining, func(*candidate) bool { return true }, &drain.Pace, "out of sites that are being drained")
	}
	if burst := c.sites.Burst; burst != nil && burst.ComeBack != nil {
		c.moveFrom(all, func(at *candidate) bool { return at.elastic() && !c.draining(at) }, func(at *candidate) bool { return !at.elastic() }, burst.ComeBack, "back from elastic sites")
	}
}

// moveFrom moves replicas from some clusters to existing free capacity of others.
func (c *cycle) moveFrom(all []*candidate, leaves, takes func(*candidate) bool, pace *cellplanev1alpha1.Pace, what string) {
	var from, to []*candidate
	going, free := int64(0), int64(0)
	for _, at := range all {
		switch {
		case leaves(at) && at.replicas > 0:
			from = append(from, at)
			going += int64(at.replicas)
		case takes(at) && !c.draining(at):
			to = append(to, at)
			free += c.left(at)
		}
	}
	possible := min(going, free)
	c.stranded += int32(going - possible)
	if possible == 0 {
		return
	}
	allowed, again := c.allowance(pace)
	moving := min(possible, allowed)
	if moving < going {
		c.again = earliest(c.again, again)
	}
	if moving == 0 {
		return
	}
	c.moved += int32(moving)
	c.note("%d of %d replicas moved %s", moving, going, what)
	c.thin(from, going-moving)
	for _, step := range byStep(to) {
		here := min(moving, sum(step, c.left))
		c.share(step, here, c.left)
		moving -= here
	}
}

// leaveAtPace prepares a fresh decision: it removes all replicas from clusters, except for those in drained sites
// that must stay for now because of the pace. It returns the number of the latter.
func (c *cycle) leaveAtPace(selected []*candidate, wanted int64) (staying int64) {
	var from []*candidate
	held, free := int64(0), int64(0)
	for _, at := range selected {
		at.replicas = 0
		if c.draining(at) {
			at.replicas = at.assigned
			held += int64(at.assigned)
			from = append(from, at)
		} else {
			free += at.capacity() - at.growth
		}
	}
	going := min(held, wanted)
	if going == 0 {
		c.thin(from, 0)
		return 0
	}
	allowed, again := c.allowance(&c.sites.Drain.Pace)
	possible := max(0, min(going, free-(wanted-going)))
	c.stranded += int32(going - possible)
	moving := min(possible, allowed)
	if moving < going {
		c.again = earliest(c.again, again)
	}
	if moving > 0 {
		c.moved += int32(moving)
		c.note("%d of %d replicas moved out of sites that are being drained", moving, going)
	}
	c.thin(from, going-moving)
	return going - moving
}

// notDrained returns the clusters of sites that are not drained.
func (c *cycle) notDrained(selected []*candidate) []*candidate {
	return slices.DeleteFunc(slices.Clone(selected), c.draining)
}

// withDrained adds the eligible clusters of drained sites to the selected ones. Spread constraints do not count
// them, but their replicas must not leave all at once.
func (c *cycle) withDrained(eligible, selected []*candidate) []*candidate {
	if c.sites == nil || c.sites.Drain == nil || !c.strategy.byCapacity() || c.spec.Replicas <= 0 {
		return selected
	}
	for _, at := range eligible {
		if at.assigned > 0 && c.draining(at) && !slices.Contains(selected, at) {
			selected = append(selected, at)
		}
	}
	return selected
}

// thin reduces the replicas of clusters to the given sum.
func (c *cycle) thin(clusters []*candidate, kept int64) {
	had := make(map[*candidate]int64, len(clusters))
	for _, at := range clusters {
		had[at] = int64(at.replicas)
		at.replicas = 0
	}
	c.share(clusters, kept, func(at *candidate) int64 { return had[at] })
}

// left is the existing capacity of a cluster that this decision leaves free.
func (c *cycle) left(at *candidate) int64 {
	return max(0, at.available-at.growth-max(0, int64(at.replicas-at.assigned)))
}

// allowance returns how many replicas may move now and the delay until the next check.
func (c *cycle) allowance(pace *cellplanev1alpha1.Pace) (int64, time.Duration) {
	progress, replicas := &c.request.Progress, int64(c.spec.Replicas)
	interval := pace.Interval.Duration
	if interval <= 0 {
		interval = defaultInterval
	}
	if rest := interval - progress.Now.Sub(progress.MovedAt); !progress.MovedAt.IsZero() && rest > 0 {
		return 0, rest
	}
	unavailable := max(0, replicas-int64(progress.Ready))
	mayLack := max(1, replicas*int64(pace.MaxUnavailablePercent)/100)
	step := (replicas*int64(max(1, pace.StepPercent)) + 99) / 100
	return max(0, min(step-int64(c.moved), mayLack-unavailable-int64(c.moved))), interval
}

// defaultInterval is the minimum time between steps if the profile sets none.
const defaultInterval = 30 * time.Second

func earliest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func sum(clusters []*candidate, of func(*candidate) int64) int64 {
	total := int64(0)
	for _, at := range clusters {
		total += of(at)
	}
	return total
}
