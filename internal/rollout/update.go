package rollout

import (
	"cmp"
	"fmt"
)

// whole is the goal of a cluster of which no pod is updated. It is told the new revision nevertheless, with a partition that keeps all pods: so its controller
// knows which of them are old.
const whole = 1 << 30

// divideUpdated sets the goals: how many pods of each cluster keep their revision in the end.
func (p *planner) divideUpdated() {
	switch {
	case p.in.Bounds.Partition == 0 || !p.in.Kind.partitions():
	case p.in.Kind.countsUpdated():
		p.divideByNumber()
	default:
		p.divideByOrdinal()
	}
}

// divideByOrdinal gives each cluster the ordinals after those of the clusters before it. Ordinals below the partition keep their revision.
func (p *planner) divideByOrdinal() {
	before := 0
	for i := range p.states {
		s := &p.states[i]
		s.goal = max(0, p.in.Bounds.Partition-before)
		if s.goal >= s.Share {
			s.goal = whole
		}
		before += s.Share
	}
}

// divideByNumber lets clusters that have begun keep what they have updated, and gives the rest to clusters in their order.
func (p *planner) divideByNumber() {
	left := p.in.Bounds.maxUpdated()
	for i := range p.states {
		if s := &p.states[i]; !s.Lost {
			left -= p.alreadyUpdated(s)
		}
	}
	for _, begun := range []bool{true, false} {
		for i := range p.states {
			s := &p.states[i]
			if s.Lost || begun != (s.Entry.Command.Revision == p.in.Revision && s.Entry.Seq > 0) {
				continue
			}
			already, replicas := p.alreadyUpdated(s), s.replicas()
			more := max(0, min(left, replicas-already))
			left -= more
			if s.goal = max(0, replicas-already-more); s.goal == replicas && !begun {
				s.goal = whole
			}
		}
	}
}

// alreadyUpdated returns how many pods have the revision, and cannot be expected to lose it.
func (p *planner) alreadyUpdated(s *state) int {
	switch {
	case s.Entry.Seq == 0 || s.Observed == nil:
		return 0
	case s.Entry.Command.Revision != p.in.Revision:
		return min(s.entry.updated(p.in.Revision), s.Entry.Command.Replicas)
	case s.Observed.Seq == s.Entry.Seq:
		return min(s.Observed.Updated, s.Entry.Command.Replicas)
	default:
		return min(s.entry.Loosened.Updated, s.Entry.Command.Replicas)
	}
}

// replicas returns how many replicas the cluster has been told to have, or will be told if there are none yet.
func (s *state) replicas() int {
	if s.Entry.Seq == 0 {
		return s.Share
	}
	return s.Entry.Command.Replicas
}

// wantsUpdate reports whether a cluster has not been told yet what it should have in the end.
func (s *state) wantsUpdate(p *planner) bool {
	now := &s.entry.Command
	switch {
	case s.Entry.Seq == 0 || s.Share == 0 && now.Replicas == 0 && s.rest && !s.Chosen:
		return false
	case now.Revision != p.in.Revision:
		return true
	case now.Paused && !s.rest && !p.in.Paused:
		return true
	case p.in.Paused && !s.rest:
		return false // stopped, perhaps by its partition
	default:
		return p.in.Kind.partitions() && now.Partition != min(s.goal, now.Replicas) && s.entry.mixed()
	}
}

// update begins, continues and widens the update of clusters. Free budget is divided in proportion to the replicas, so that clusters
// proceed side by side.
func (p *planner) update() {
	var waiting, widening []*state
	for i := range p.states {
		s := &p.states[i]
		switch {
		case !s.ready():
		case s.wantsUpdate(p) && p.in.Paused:
			s.block(cmp.Or(p.in.PausedFor, "the rollout is paused"))
		case s.wantsUpdate(p) && s.Hold != "" && s.entry.Command.Revision != p.in.Revision:
			s.block(s.Hold)
		case s.wantsUpdate(p):
			waiting = append(waiting, s)
		case p.canWiden(s):
			widening = append(widening, s)
		}
	}
	p.grant(waiting, func(s *state, next Command) {
		reason := fmt.Sprintf("updates with surge %d and %d unavailable", next.Surge, next.Unavailable)
		if p.in.Kind.keepsAll(&next) {
			reason = "keeps all its pods, by the partition"
		}
		nothing := next.Surge+next.Unavailable == 0 || !p.in.Kind.surges() && next.Unavailable == 0
		if (nothing || !p.command(s, next, reason)) && !p.replaceRefused(s) {
			s.block(p.shortOf(s))
		}
	})
	p.grant(widening, func(s *state, next Command) {
		now := &s.entry.Command
		if next.Surge+next.Unavailable >= 2*(now.Surge+now.Unavailable) {
			p.command(s, next, fmt.Sprintf("updates faster, with surge %d and %d unavailable", next.Surge, next.Unavailable))
		}
	})
}

// replaceRefused replaces a command that a cluster with a StatefulSet refuses, and that has no room to be replaced by an update, by one that keeps all pods. It
// loosens nothing. Without it, the cluster would not come to rest: what earlier commands allow would be taken from the other clusters, which it may wait for. In the
// other kinds, that would be surge for its own update.
func (p *planner) replaceRefused(s *state) bool {
	next := s.entry.Command
	if p.in.Kind != StatefulSet || !s.Refused || s.observed() || next.Revision == p.in.Revision {
		return false
	}
	next.Revision, next.Partition, next.Unavailable = p.in.Revision, next.Replicas, 1
	return p.command(s, next, "keeps all its pods until there is room")
}

// canWiden reports whether more budget would speed up a cluster that is in the middle of its update.
func (p *planner) canWiden(s *state) bool {
	now := &s.entry.Command
	return !p.in.Paused && !now.Paused && !s.rest && !s.Refused && s.entry.mixed() && now.Revision == p.in.Revision &&
		s.Observed.Pods-s.Observed.Updated > 2*(now.Surge+now.Unavailable)
}

// grant divides the free budget among clusters and passes each its command. What a cluster's envelope already contains costs nothing.
func (p *planner) grant(clusters []*state, give func(*state, Command)) {
	total := 0
	for _, s := range clusters {
		if s.goal < s.entry.Command.Replicas {
			total += s.entry.Command.Replicas
		}
	}
	room := p.room()
	for _, s := range clusters {
		next, left := s.entry.Command, p.room()
		next.Revision, next.Partition, next.Paused = p.in.Revision, min(s.goal, next.Replicas), false
		if next.Replicas > 0 && p.in.Kind.keepsAll(&next) {
			if s.rest || p.in.Kind == StatefulSet {
				next.Surge, next.Unavailable = 0, 1 // nothing is replaced, but the API wants a number
			}
			give(s, next)
			continue
		}
		down := s.entry.Loosened.Available
		if room.Available >= 0 || s.Failing || p.rules.freeIfDown {
			down = p.effective(s, &s.entry).Available
		}
		free := max(0, next.Replicas-down)
		if room.Available < 0 {
			// Too few pods may be available. What an envelope allows need not be used for that: only as much as the cluster has or misses.
			free = min(free, max(1, s.entry.Command.Unavailable, next.Replicas-s.Observed.Available))
		}
		next.Surge, next.Unavailable = 0, free+part(room.Available, left.Available, next.Replicas, total)
		if p.in.Kind.surges() {
			next.Surge = max(0, s.entry.Loosened.Pods-next.Replicas) + part(room.Pods, left.Pods, next.Replicas, total)
		}
		if p.rules.perCluster {
			next.Surge, next.Unavailable = p.in.Bounds.Surge, p.in.Bounds.Unavailable
		}
		next.Surge, next.Unavailable = min(next.Surge, next.Replicas), min(next.Unavailable, next.Replicas)
		if next.Replicas == 0 {
			next.Unavailable = 1 // there is nothing to replace, but the API wants a number
		}
		give(s, next)
	}
}

// room returns how much of the bounds is free. It is negative where a bound is broken.
func (p *planner) room() Envelope {
	return Envelope{Pods: p.in.Bounds.maxPods() - p.sums.Pods, Available: p.sums.Available - p.in.Bounds.minAvailable()}
}

// part returns the part of the budget for one cluster: in proportion, rounded up, as far as there is any left.
func part(budget, left, replicas, total int) int {
	if budget <= 0 || left <= 0 || total == 0 {
		return 0
	}
	return min(left, (budget*replicas+total-1)/total)
}

// shortOf says what a cluster that does not fit waits for.
func (p *planner) shortOf(s *state) string {
	switch {
	case p.limitsUpdated() && p.sums.Updated >= p.in.Bounds.maxUpdated():
		return "waits: as many pods are updated as the partition allows"
	case p.in.Kind.surges() && p.in.Bounds.Surge > 0:
		return "waits for other clusters: maxSurge and maxUnavailable are used up"
	case s.rest:
		return "waits for other clusters: maxUnavailable is used up"
	default:
		return "waits for its own pods: maxUnavailable is used up"
	}
}
