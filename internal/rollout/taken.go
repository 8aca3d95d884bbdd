package rollout

// Taken is what people have made of a copy that is out of the federation's hands. What its commands in force and its pods allow counts as always, but it gets no
// further command that would change it: nobody knows when that arrives, and what it allows would be taken from the other clusters until then.
type Taken struct {
	// Replicas is how many replicas the object asks for.
	Replicas int
	// Newest is whether it has the pod template that the rollout leads to.
	Newest bool
	// Differs is whether it is not as its newest command says.
	Differs bool
}

// untilClosed is what such a cluster waits for.
const untilClosed = "waits until the entry of the copy is closed"

// awaited reports whether a rollout waits until the copy of a cluster is in the federation's hands again.
func (s *state) awaited(p *planner) bool {
	return !s.observed() || s.Entry.Command.Replicas != s.Share || s.wantsUpdate(p) || s.Taken.Differs && !s.rest
}

// follow tells clusters whose copies are out of the federation's hands what these copies are already: somebody has decided to keep that. It costs nothing of the bounds,
// since the cluster need not do anything for it.
func (p *planner) follow() {
	for i := range p.states {
		s := &p.states[i]
		if s.waiting != untilClosed || s.Entry.Seq == 0 {
			continue
		}
		next := s.entry.Command
		if s.Taken.Newest && next.Revision != p.in.Revision {
			next.Revision, next.Partition, next.Surge, next.Unavailable = p.in.Revision, min(s.goal, next.Replicas), 0, 1
		}
		if s.Taken.Replicas == s.Share {
			next.Replicas, next.Partition = s.Share, min(next.Partition, s.Share)
		}
		if next == s.entry.Command {
			continue
		}
		before := p.counted(s, &s.entry)
		was := s.entry
		s.entry = Entry{Seq: was.Seq + 1, Command: next, Seen: was.Seen, Revisions: was.Revisions, Loosened: Envelope{
			Pods: max(was.Loosened.Pods, next.Replicas), Available: min(was.Loosened.Available, next.Replicas), Updated: max(was.updated(next.Revision), next.Replicas),
		}}
		s.entry.remember()
		p.sums = p.sums.plus(p.counted(s, &s.entry).minus(before))
		s.commanded, s.reason = true, "is told what its copy is already"
	}
}
