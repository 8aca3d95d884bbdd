package rollout

import (
	"fmt"
	"sort"
)

// scaleIn removes replicas beyond the shares, as many as may go at once.
func (p *planner) scaleIn() {
	for i := range p.states {
		s := &p.states[i]
		now := s.entry.Command
		if !s.ready() || now.Replicas <= s.Share {
			continue
		}
		if p.updateFirst(s) {
			s.reason = "waits to scale in until its update has finished"
			continue
		}
		next := func(fewer int) Command { return p.scaled(s, now.Replicas-fewer) }
		fewer := most(now.Replicas-s.Share, func(n int) bool { return p.fits(s, next(n)) })
		if fewer == 0 {
			s.block("waits to scale in until other pods are available")
			continue
		}
		p.command(s, next(fewer), fmt.Sprintf("scales in from %d to %d", now.Replicas, now.Replicas-fewer))
	}
}

// updateFirst reports whether a cluster in the middle of an update must finish it before it is scaled in.
//
// A StatefulSet must: a pod that is being replaced leaves a gap, and a status with as many pods as replicas could then include one that
// is yet to go. A Deployment should: its controller scales in without regard to what is available, and may hang if its only ReplicaSet
// happens to have the new size. But one that is stopped or stuck need not wait. A CloneSet keeps to its bounds. An interpreted kind is treated like a Deployment.
func (p *planner) updateFirst(s *state) bool {
	if s.rest || !s.entry.mixed() {
		return false
	}
	switch p.in.Kind {
	case StatefulSet:
		return true
	case CloneSet:
		return false
	default:
		return !p.in.Paused && !s.Failing
	}
}

// scaleOut adds replicas up to the shares, as many as there is room for.
func (p *planner) scaleOut() {
	for i := range p.states {
		s := &p.states[i]
		now := s.entry.Command
		if s.ready() && s.Chosen && s.Share == 0 && s.Entry.Seq == 0 {
			p.command(s, p.first(s, 0), "gets a copy without replicas")
		}
		if !s.ready() || now.Replicas >= s.Share {
			continue
		}
		next := func(further int) Command { return p.scaled(s, now.Replicas+further) }
		further := most(s.Share-now.Replicas, func(n int) bool { return p.fits(s, next(n)) })
		if further > 0 {
			p.command(s, next(further), fmt.Sprintf("scales out from %d to %d", now.Replicas, now.Replicas+further))
		}
	}
}

// most returns the highest number up to limit that fits. If a number fits, so do all below it.
func most(limit int, fits func(int) bool) int {
	return sort.Search(limit, func(n int) bool { return !fits(n + 1) })
}

// scaled returns the command of a cluster with other replicas.
func (p *planner) scaled(s *state, replicas int) Command {
	next := s.entry.Command
	if s.Entry.Seq == 0 {
		return p.first(s, replicas)
	}
	if s.Refused && !s.observed() && s.Observed.Revision != "" {
		next.Revision = s.Observed.Revision // what the cluster has; it refuses the other, perhaps for its revision
	}
	updated := next.Replicas - next.Partition
	next.Replicas = replicas
	switch {
	case p.in.Kind.countsUpdated() && next.Partition > 0:
		next.Partition = max(0, replicas-updated)
	case p.in.Kind == StatefulSet && next.Partition > 0 && updated <= 0:
		next.Partition = replicas // it keeps all pods, further ones too
	}
	if p.rules.together {
		next.Revision = p.in.Revision
	}
	return next
}

// first returns the first command of a cluster. It has the new revision if all of it may.
func (p *planner) first(s *state, replicas int) Command {
	next := Command{Replicas: replicas, Unavailable: 1, Revision: p.in.Revision}
	if p.in.Previous != "" && (p.in.Paused || s.Hold != "" || s.goal > 0) {
		next.Revision = p.in.Previous
	}
	return next
}
