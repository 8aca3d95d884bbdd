package rollout

import "slices"

// Envelope is what a cluster can do without a further command: the most pods, the fewest available pods (but for pods that fail by
// themselves), and the most pods of the revision that it was told to have.
type Envelope struct {
	Pods, Available, Updated int
}

// plus returns the sum of two envelopes.
func (e Envelope) plus(other Envelope) Envelope {
	return Envelope{e.Pods + other.Pods, e.Available + other.Available, e.Updated + other.Updated}
}

// minus returns the difference of two envelopes.
func (e Envelope) minus(other Envelope) Envelope {
	return Envelope{e.Pods - other.Pods, e.Available - other.Available, e.Updated - other.Updated}
}

// observed reports whether the member's controller is known to have seen the newest command.
func (c *Cluster) observed() bool {
	return c.Entry.Seq == 0 || c.Observed != nil && c.Observed.Seq == c.Entry.Seq && c.Observed.Current
}

// atRest reports whether the newest command has nothing left to do: the controller has seen it, there are as many pods as it asks for, and
// all that it updates are updated. They need not be available. From here on, only a further command changes the pods, or their own failure.
func (c *Cluster) atRest() bool {
	if c.Entry.Seq == 0 {
		return true
	}
	command, o := &c.Entry.Command, c.Observed
	return c.observed() && o.Terminating == 0 && o.Pods == command.Replicas && o.Remaining == 0
}

// Updated reports for each cluster whether it has finished the update: all its pods that the partition does not keep have the revision, and all are available.
func (in *Input) Updated() []bool {
	p := newPlanner(*in, rules{})
	updated := make([]bool, len(p.states))
	for i := range p.states {
		s := &p.states[i]
		command := &s.Entry.Command
		taken := s.Taken != nil && s.Taken.Differs
		updated[i] = s.Entry.Seq > 0 && command.Revision == in.Revision && !s.Unreachable && !taken && s.Observed != nil && s.rest && !s.wantsUpdate(p) &&
			s.Observed.Available >= command.Replicas
	}
	return updated
}

// inForce returns what the cluster can do by its commands. Those since the last rest loosen it; only rest tightens it. An observation in
// between does not: a controller that has seen a narrower command may still be carrying out what it decided by the wider one.
func (c *Cluster) inForce(rules rules) Envelope {
	command, o := &c.Entry.Command, c.Observed
	switch {
	case c.Entry.Seq == 0:
		return Envelope{}
	case c.atRest() && !rules.neverClose:
		return Envelope{Pods: command.Replicas, Available: command.Replicas, Updated: o.Updated}
	case rules.trustObserved && c.observed():
		return Envelope{
			Pods:      command.Replicas + command.Surge,
			Available: command.Replicas - command.Unavailable,
			Updated:   command.Replicas - command.Partition,
		}
	case rules.forgetUndelivered && o != nil:
		return Envelope{Pods: o.Pods, Available: o.Available, Updated: o.Updated}
	default:
		return c.Entry.Loosened
	}
}

// updated returns how many pods may have a revision, by an entry that is not at rest or has been settled.
func (e *Entry) updated(revision string) int {
	switch {
	case e.Command.Revision == revision && e.Seq > 0:
		return e.Loosened.Updated
	case !e.may(revision):
		return 0
	default:
		return e.Loosened.Pods
	}
}

// settle returns the entry of a cluster with all that the observation shows. It is a shorter record of the same facts: no command is in it
// that is not in the ledger.
func (c *Cluster) settle(rules rules) Entry {
	entry := c.Entry
	entry.Loosened = c.inForce(rules)
	if c.Observed != nil {
		entry.Seen = max(entry.Seen, c.Observed.Version)
	}
	if entry.mixed() && c.atRest() && c.Observed.Updated == c.Observed.Pods && c.completed() {
		entry.Revisions = []string{entry.Command.Revision}
	}
	return entry
}

// completed reports whether pods that fail are replaced by pods of the same revision. Below a partition they are not before all pods were available.
func (c *Cluster) completed() bool {
	return c.Entry.Command.Partition == 0 || c.Observed.Available >= c.Entry.Command.Replicas
}

// loosen returns the entry with a further command, of which it is not known when it arrives. Rest is whether the entry is at rest, and
// now what the pods are like, as far as is known.
func (e *Entry) loosen(kind Kind, next Command, rest bool, now Envelope) Entry {
	// The revisions are not extended yet: that would cost an allocation for every command that is only tried.
	result := Entry{Seq: e.Seq + 1, Command: next, Seen: e.Seen, Revisions: e.Revisions}
	if e.Seq == 0 {
		result.Loosened = Envelope{Pods: next.Replicas, Updated: next.Replicas}
		return result
	}
	was := e.Loosened
	rolling := !rest || next.Revision != e.Command.Revision || e.mixed() && kind.updatesMore(&e.Command, &next)
	if kind.keepsAll(&next) && (rest || kind == StatefulSet) {
		rolling = false // a CloneSet in the middle may still remove pods that it has marked, by the new bounds
	}
	most, least := next.Replicas, was.Available
	if rolling {
		// Never more than twice the replicas: new pods are at most the replicas, and old ones are not created beyond them.
		most += min(next.Surge, next.Replicas)
		least = min(least, next.Replicas-next.Unavailable)
	}
	if next.Replicas < e.Command.Replicas {
		least = min(least, scaledIn(kind, now, &next, most, !rolling))
	}
	updated := next.Replicas - next.Partition
	if !e.mixed() && next.Revision == e.Command.Revision {
		updated = next.Replicas // there is no other revision for a partition to keep
	}
	result.Loosened = Envelope{
		Pods:      max(was.Pods, most),
		Available: max(0, least),
		Updated:   max(e.updated(next.Revision), updated),
	}
	return result
}

// remember adds the revision of the command to those that pods may have.
func (e *Entry) remember() {
	if !slices.Contains(e.Revisions, e.Command.Revision) {
		e.Revisions = append(slices.Clone(e.Revisions), e.Command.Revision)
		e.Revisions = e.Revisions[max(0, len(e.Revisions)-mostRevisions):]
	}
}

// scaledIn returns how many pods remain available when a cluster is told to have fewer replicas. Single is whether all pods have one
// revision.
func scaledIn(kind Kind, now Envelope, next *Command, most int, single bool) int {
	// At worst, every pod that goes was available.
	worst := now.Available - max(0, now.Pods-most)
	switch {
	case kind == Deployment && single:
		return next.Replicas // one ReplicaSet, which removes unavailable pods first
	case kind == CloneSet:
		return max(worst, next.Replicas-next.Unavailable) // its maxUnavailable also limits scaling in
	default:
		// A Deployment removes pods from all its ReplicaSets in proportion, whatever is available. A StatefulSet removes the highest
		// ordinals.
		return worst
	}
}
