package rollout

// effective returns what a cluster can do by an entry and the pods that it is known to have.
func (p *planner) effective(s *state, entry *Entry) Envelope {
	e, o := entry.Loosened, s.Observed
	e.Updated = entry.updated(p.in.Revision)
	if o == nil || s.Entry.Seq == 0 {
		return e
	}
	e.Pods, e.Available = max(e.Pods, o.Pods), min(e.Available, o.Available)
	if s.Taken != nil {
		e.Pods = max(e.Pods, s.Taken.Replicas)
	}
	if o.Seq == entry.Seq && entry.Command.Revision == p.in.Revision {
		e.Updated = max(e.Updated, o.Updated)
	}
	return e
}

// counted returns what an entry of a cluster adds to the sums.
func (p *planner) counted(s *state, entry *Entry) Envelope {
	if s.Lost || s.Unreachable && p.rules.forgetUnreachable {
		return Envelope{}
	}
	e := p.effective(s, entry)
	if s.Entry.Seq > 0 && (s.Observed == nil || s.Unreachable && !p.in.KeepAvailable) {
		e.Available = 0
	}
	return e
}

// fits is the check that every command passes. A command fits if, for each of the three sums, the sum stays within its bound, or the
// command allows the cluster nothing that commands in force do not allow already. So a bound that is broken, by pods that failed or
// because it was changed, is not broken further, and commands that cannot do harm go on.
func (p *planner) fits(s *state, next Command) bool {
	entry := p.loosened(s, next)
	sums, bounds := p.sums.plus(p.counted(s, &entry).minus(p.counted(s, &s.entry))), p.in.Bounds
	before, after := s.entry.Loosened, entry.Loosened
	if s.Failing || p.rules.freeIfDown {
		// Its pods have been unavailable for long. Replacing them may heal; a command for that may find some of them available again.
		before.Available = p.effective(s, &s.entry).Available
	}
	switch {
	case p.rules.perCluster:
		return true
	case sums.Pods > bounds.maxPods() && (after.Pods > before.Pods || p.rules.strictSums) && !p.rules.anyPods:
		return false
	case sums.Available < bounds.minAvailable() && (after.Available < before.Available || p.rules.strictSums) && !p.rules.anyAvailable:
		return false
	case p.limitsUpdated() && s.changesRevision(next) && sums.Updated > bounds.maxUpdated() &&
		(entry.updated(p.in.Revision) > s.entry.updated(p.in.Revision) || p.rules.strictSums) && !p.rules.anyUpdated:
		return false
	}
	return true
}

// loosened returns a cluster's entry with a further command.
func (p *planner) loosened(s *state, next Command) Entry {
	entry := s.entry.loosen(p.in.Kind, next, s.rest, p.effective(s, &s.entry))
	if s.absent() {
		entry.Loosened.Updated = max(entry.Loosened.Updated, next.Replicas) // there is no other revision for a partition to keep
	}
	return entry
}

// absent reports whether the cluster has no copy: it has refused to create it.
func (s *state) absent() bool {
	return s.Observed != nil && s.Observed.Seq == 0 && s.Observed.Pods == 0
}

// changesRevision reports whether a command changes the revision of pods. Scaling a cluster whose pods all have one revision does not: its
// new pods have the same, since the cluster knows no other. Nor does creating a copy.
func (s *state) changesRevision(next Command) bool {
	return s.Entry.Seq > 0 && !s.absent() && (s.entry.mixed() || next.Revision != s.entry.Command.Revision)
}

// limitsUpdated reports whether the number of updated pods is bounded.
func (p *planner) limitsUpdated() bool { return p.in.Bounds.Partition > 0 && p.in.Kind.countsUpdated() }

// command gives a command if it fits.
func (p *planner) command(s *state, next Command, reason string) bool {
	if !p.fits(s, next) {
		return false
	}
	before := p.counted(s, &s.entry)
	s.entry = p.loosened(s, next)
	s.entry.remember()
	p.sums = p.sums.plus(p.counted(s, &s.entry).minus(before))
	s.commanded, s.reason = true, reason
	return true
}
