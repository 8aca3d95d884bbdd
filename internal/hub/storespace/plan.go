package storespace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Parts of the quota of a member.
const (
	// low is the size from which on is told of it, and from which on a defragmentation is worth that requests to the member wait meanwhile.
	low = 0.8
	// relaxed is what may be in use for that: the member does not soon reach low again.
	relaxed = 0.6
	// scarce is how much in use means that the cell needs the rest for itself. Below it as a size, an etcd that was full may take writes again.
	scarce = 0.9
)

const (
	// useful is the part of its size that a full member has to gain by a defragmentation.
	useful = 0.1
	// behind is how many entries of the log a member may lack, and still counts as one that serves.
	behind = 1_000
)

// member is what is known of a member of an etcd.
type member struct {
	id       uint64
	endpoint string
	// leads is the member that it takes for the leader in a term; 0 means none.
	leads, term uint64
	// applied is the last entry of the log that it has executed.
	applied uint64
	// size of its database, of which inUse is used; quota is the largest size, 0 if it has none.
	size, inUse, quota int64
}

func (m *member) leader() bool { return m.leads == m.id }

// has reports whether a number of bytes reaches a part of the quota.
func (m *member) has(bytes int64, part float64) bool {
	return m.quota > 0 && float64(bytes) >= part*float64(m.quota)
}

// view is what is known of an etcd.
type view struct {
	// members are those that answer, by ID.
	members []member
	// full are the alarms of members that have used up their quota. While there is one, no member takes writes.
	full []clientv3.AlarmMember
	// problem says why no member can be spared now; empty if one can.
	problem string
	// waits says what a full etcd waits for to be compacted; empty if nothing.
	waits string
}

// newView combines what an etcd says of its members and alarms with what these say of themselves, by endpoint.
func newView(listed []*etcdserverpb.Member, alarms []*etcdserverpb.AlarmMember, answers map[string]*clientv3.StatusResponse) *view {
	v := &view{}
	var own, learners, voters int
	for _, l := range listed {
		if l.IsLearner {
			learners++
			continue
		}
		voters++
		if m, atOwn := find(l, answers); m != nil {
			v.members = append(v.members, *m)
			if atOwn {
				own++
			}
		}
	}
	slices.SortFunc(v.members, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	corrupt := false
	for _, alarm := range alarms {
		switch alarm.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			v.full = append(v.full, clientv3.AlarmMember(*alarm))
		case etcdserverpb.AlarmType_CORRUPT:
			corrupt = true
		}
	}
	switch {
	case corrupt:
		v.problem = "a member has corrupt data"
	case learners > 0:
		v.problem = "a member is being added"
	case own < voters:
		v.problem = fmt.Sprintf("of %d members, %d answer at an address that the Cell has and the member advertises", voters, own)
	case slices.ContainsFunc(v.members, func(m member) bool { return m.quota == 0 }):
		v.problem = "a member has no quota, or does not tell it"
	case !v.agree():
		v.problem = "the members do not agree on a leader"
	case v.lagging():
		v.problem = "a member is behind the others"
	}
	return v
}

// find returns what a member has answered, and whether that was at an address that it advertises: at others, another member may answer the next time.
func find(listed *etcdserverpb.Member, answers map[string]*clientv3.StatusResponse) (found *member, own bool) {
	for endpoint, status := range answers {
		if status.Header.MemberId != listed.ID {
			continue
		}
		advertised := slices.ContainsFunc(listed.ClientURLs, func(url string) bool { return strings.TrimSuffix(url, "/") == strings.TrimSuffix(endpoint, "/") })
		if found != nil && (own || !advertised) {
			continue
		}
		found, own = &member{
			id: listed.ID, endpoint: endpoint, leads: status.Leader, term: status.RaftTerm, applied: status.RaftAppliedIndex,
			size: status.DbSize, inUse: status.DbSizeInUse, quota: max(status.DbSizeQuota, 0),
		}, advertised
	}
	return found, own
}

// agree reports whether all members have the same leader. One that is cut off may not have noticed, and its term tells.
func (v *view) agree() bool {
	for i := range v.members {
		if m, first := &v.members[i], &v.members[0]; m.leads == 0 || m.leads != first.leads || m.term != first.term {
			return false
		}
	}
	return slices.ContainsFunc(v.members, func(m member) bool { return m.leader() })
}

// lagging reports whether a member has not executed what others have.
func (v *view) lagging() bool {
	most := v.latest(func(*member) bool { return true })
	return slices.ContainsFunc(v.members, func(m member) bool { return m.applied+behind < most.applied })
}

// latest returns the member that has executed the most of those that a function selects, nil if it selects none.
func (v *view) latest(selects func(*member) bool) *member {
	var found *member
	for i := range v.members {
		if m := &v.members[i]; selects(m) && (found == nil || m.applied > found.applied) {
			found = m
		}
	}
	return found
}

// fullest returns the member whose size is nearest to its quota, nil if none has a quota.
func (v *view) fullest() *member {
	var found *member
	for i := range v.members {
		m := &v.members[i]
		if m.quota > 0 && (found == nil || float64(m.size)/float64(m.quota) > float64(found.size)/float64(found.quota)) {
			found = m
		}
	}
	return found
}

// scarce reports whether a member needs what is left of its quota for itself.
func (v *view) scarce() bool {
	return slices.ContainsFunc(v.members, func(m member) bool { return m.has(m.inUse, scarce) })
}

// action is what is done to an etcd.
type action string

const (
	nothing    action = ""
	moveLeader action = "move the leader"
	defragment action = "defragment"
	compact    action = "compact"
	disarm     action = "clear the alarm"
)

// step is the next thing to do.
type step struct {
	action action
	// member is the one to do it to, and to is the one that becomes the leader.
	member, to member
}

// past is what was done to the members of an etcd.
type past struct {
	// lately reports whether a member was defragmented a short time ago.
	lately func(id uint64) bool
	// compacted reports whether the etcd was compacted since. A member that takes no writes does not tell what it gains by that.
	compacted func(id uint64) bool
}

// next returns the next step.
func (v *view) next(done past) step {
	if v.problem != "" {
		return step{}
	}
	var leader, follower *member
	for i := range v.members {
		switch m := &v.members[i]; {
		case !v.due(m, done):
		case m.leader():
			leader = m
		case follower == nil:
			follower = m
		}
	}
	switch {
	case follower != nil:
		return step{action: defragment, member: *follower}
	case leader != nil && len(v.members) == 1:
		return step{action: defragment, member: *leader}
	case leader != nil:
		return step{action: moveLeader, member: *leader, to: *v.latest(func(m *member) bool { return !m.leader() })}
	case len(v.full) == 0:
		return step{}
	case slices.ContainsFunc(v.members, func(m member) bool { return m.has(m.size, scarce) }):
		return step{action: compact}
	default:
		return step{action: disarm}
	}
}

// due reports whether a member should be defragmented.
func (v *view) due(m *member, done past) bool {
	switch {
	case len(v.full) > 0 && done.compacted(m.id):
		return true
	case done.lately(m.id):
		return false
	case len(v.full) > 0:
		return float64(m.size-m.inUse) > useful*float64(m.size)
	default:
		return len(v.members) > 1 && m.has(m.size, low) && !m.has(m.inUse, relaxed)
	}
}
