package rollout

import "fmt"

// Input is everything that a plan depends on.
type Input struct {
	Kind Kind
	// Bounds are those of the template. If the scheduler has placed fewer than their replicas, the others count as unavailable.
	Bounds Bounds
	// Revision is the revision that the rollout leads to.
	Revision string
	// Previous is the revision for new copies in clusters that may not have Revision yet. If it is empty, they get Revision.
	Previous string
	// Paused stops the rollout. Scaling goes on. PausedFor says why, if not because the template says so.
	Paused    bool
	PausedFor string
	// KeepAvailable counts the pods of a cluster that does not answer as they were last observed, not as unavailable.
	KeepAvailable bool
	// Clusters are all clusters that have the workload, may have it or get it. Their order is that in which they are updated, and in which
	// the ordinals of a StatefulSet are divided.
	Clusters []Cluster
}

// Result is a plan.
type Result struct {
	// Decisions are in the order of the clusters.
	Decisions []Decision
	// Sums are the sums of all envelopes, with the commands of this plan.
	Sums Envelope
}

// Decision is what a plan says about one cluster.
type Decision struct {
	Name string
	// Entry is the cluster's part of the ledger. Entries without a new command may have become shorter, and are stored with the others.
	Entry Entry
	// Commanded is whether the entry has a new command. It must be in the stored ledger before anything of it leaves for the cluster.
	Commanded bool
	// Done is whether the cluster has what it should have, and its pods are available.
	Done bool
	// Release is whether the copy in the cluster may be deleted: it is not wanted there, and has no pods.
	Release bool
	// Reason says in words what the cluster does or waits for.
	Reason string
	// Blocked is whether Reason is something that the cluster cannot bring about by itself, such as room in the bounds. It seldom changes without a command.
	Blocked bool
}

// Plan returns the next commands. Every command has passed the check of [planner.fits]; no other code writes commands.
func Plan(in Input) Result { return plan(in, rules{}) }

func plan(in Input, rules rules) Result {
	p := newPlanner(in, rules)
	p.follow()
	p.pause()
	p.scaleIn()
	if p.sums.Available < p.in.Bounds.minAvailable() {
		p.scaleOut() // pods are missing: they are more urgent than the update
	}
	p.update()
	p.scaleOut()
	return p.result()
}

// planner is the state of one call of [Plan].
type planner struct {
	in     Input
	rules  rules
	states []state
	sums   Envelope
}

// state is a cluster during the planning.
type state struct {
	Cluster
	entry Entry
	rest  bool
	// goal is the partition that the cluster should have in the end; whole means that it is not updated at all.
	goal      int
	commanded bool
	// waiting is why the cluster cannot be commanded at all; reason is what is to be said about it, and blocked whether it waits for something outside.
	waiting, reason string
	blocked         bool
}

func newPlanner(in Input, rules rules) *planner {
	p := &planner{in: in, rules: rules, states: make([]state, len(in.Clusters))}
	for i := range p.states {
		s := &p.states[i]
		s.Cluster = in.Clusters[i]
		if s.Observed != nil && s.Observed.Version < s.Entry.Seen && !rules.anyAge {
			s.Observed = nil
		}
		s.entry, s.rest = s.settle(rules), s.atRest()
		s.waiting = s.waits()
		s.reason, s.blocked = s.waiting, s.Lost || s.Unreachable || s.Taken != nil
		p.sums = p.sums.plus(p.counted(s, &s.entry))
	}
	for i := range p.states {
		if s := &p.states[i]; s.Observed != nil && s.Observed.Seq > s.Entry.Seq && !s.Lost {
			p.hold(fmt.Sprintf("waits until command %d of cluster %s, which the ledger does not have, is adopted", s.Observed.Seq, s.Name))
		}
	}
	p.divideUpdated()
	return p
}

// hold has all clusters wait.
func (p *planner) hold(reason string) {
	for i := range p.states {
		p.states[i].waiting, p.states[i].reason = reason, reason
	}
}

// waits returns why the cluster cannot be commanded at all; empty if it can.
func (s *state) waits() string {
	switch {
	case s.Lost:
		return "given up: its replicas were moved to other clusters"
	case s.Unreachable:
		return "waits until the cluster answers"
	case s.Taken != nil:
		return untilClosed
	case s.Entry.Seq > 0 && s.Observed == nil:
		return "waits for a new report of the cluster"
	case !s.observed() && !s.Refused:
		return fmt.Sprintf("waits until the cluster has seen command %d", s.Entry.Seq)
	default:
		return ""
	}
}

// ready reports whether the cluster can be commanded now.
func (s *state) ready() bool { return s.waiting == "" && !s.commanded }

// pause stops clusters that are in the middle of an update. Those that came to rest nevertheless are not left paused; the others go on by
// [planner.update].
func (p *planner) pause() {
	for i := range p.states {
		s := &p.states[i]
		next := s.entry.Command
		switch {
		case !s.ready():
		case !p.in.Paused && s.rest && next.Paused && next.Revision == p.in.Revision:
			next.Paused = false
			p.command(s, next, "is being resumed")
		case !p.in.Paused || s.rest || !s.entry.mixed():
		case p.in.Kind.pauses() && !next.Paused:
			next.Paused = true
			p.command(s, next, "is being paused")
		case !p.in.Kind.pauses() && next.Partition < next.Replicas:
			next.Partition = next.Replicas
			p.command(s, next, "is being paused")
		}
	}
}

func (p *planner) result() Result {
	result := Result{Decisions: make([]Decision, len(p.states)), Sums: p.sums}
	for i := range p.states {
		s := &p.states[i]
		if s.waiting == untilClosed && !s.commanded && !s.awaited(p) {
			s.reason = "" // it may be open for as long as anybody likes
		}
		d := &result.Decisions[i]
		*d = Decision{Name: s.Name, Entry: s.entry, Commanded: s.commanded, Reason: s.reason, Blocked: s.blocked && !s.commanded && s.reason != ""}
		if s.commanded || !s.rest || s.Lost || s.Entry.Command.Replicas != s.Share || s.wantsUpdate(p) {
			if d.Reason == "" {
				d.Reason, d.Blocked = p.progress(s)
			}
			continue
		}
		d.Release = s.Share == 0 && !s.Unreachable
		d.Done = !s.Unreachable && (s.Observed == nil || s.Observed.Available >= s.Share)
		switch {
		case d.Reason != "":
		case d.Done:
			d.Reason = "done"
		default:
			d.Reason = fmt.Sprintf("waits for pods: %d of %d are available", s.Observed.Available, s.Share)
		}
	}
	return result
}

// block records what a cluster waits for.
func (s *state) block(reason string) { s.reason, s.blocked = reason, true }

// progress describes a cluster that has no new command, and whether it waits for something outside.
func (p *planner) progress(s *state) (reason string, blocked bool) {
	command, o := &s.entry.Command, s.Observed
	switch {
	case s.Refused && !s.observed():
		return fmt.Sprintf("the cluster refuses command %d", s.Entry.Seq), true
	case o == nil || s.rest:
		return "waits until there is room for more pods", true
	case s.entry.mixed() && command.Paused:
		return fmt.Sprintf("paused: %d of %d pods are updated", o.Updated, command.Replicas), false
	case s.entry.mixed():
		return fmt.Sprintf("updates: %d of %d pods are updated, %d are available", o.Updated, command.Replicas-command.Partition, o.Available), false
	default:
		return fmt.Sprintf("has %d of %d pods", o.Pods, command.Replicas), false
	}
}
