package storespace

import (
	"maps"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

const gib = 1 << 30

func never(uint64) bool { return false }

// untouched is the past of an etcd to which nothing was done.
var untouched = past{lately: never, compacted: never}

// of returns members of these sizes and parts in use, in GiB, of quotas of 8. The first leads.
func of(sizes ...[2]float64) *view {
	v := &view{}
	for i, s := range sizes {
		v.members = append(v.members, member{id: uint64(i + 1), leads: 1, term: 1, applied: uint64(100 + i), size: int64(s[0] * gib), inUse: int64(s[1] * gib), quota: 8 * gib})
	}
	return v
}

func (v *view) filled() *view {
	v.full = []clientv3.AlarmMember{{MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE}}
	return v
}

func (v *view) but(problem string) *view {
	v.problem = problem
	return v
}

func TestNext(t *testing.T) {
	big, small, data := [2]float64{7, 1}, [2]float64{1, 1}, [2]float64{7, 6}
	full := [2]float64{8, 8}
	for _, test := range []struct {
		name   string
		view   *view
		want   action
		member uint64
	}{
		{"space is left", of([2]float64{6, 1}, [2]float64{6, 1}, [2]float64{6, 1}), nothing, 0},
		{"followers first", of(big, big, big), defragment, 2},
		{"one follower after the other", of(big, small, big), defragment, 3},
		{"the leader last, when it no longer leads", of(big, small, small), moveLeader, 1},
		{"a quorum would be lost", of(big, big, big).but("a member does not answer"), nothing, 0},
		{"most is data", of(data, data, data), nothing, 0},
		{"alone", of(big), nothing, 0},
		{"full, and much is not in use", of([2]float64{8, 1}).filled(), defragment, 1},
		{"full of old revisions", of(full).filled(), compact, 0},
		{"full, and one member is done", of(full, small, big).filled(), defragment, 3},
		{"no longer full", of(small, small, small).filled(), disarm, 0},
		{"full, and a member does not answer", of(big, big).filled().but("a member does not answer"), nothing, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if next := test.view.next(untouched); next.action != test.want || next.member.id != test.member {
				t.Errorf("%q of member %d, want %q of member %d", next.action, next.member.id, test.want, test.member)
			}
		})
	}
	others := func(id uint64) bool { return id != 3 }
	if next := of(big, big, big).next(past{lately: others, compacted: never}); next.action != defragment || next.member.id != 3 {
		t.Errorf("if the others were done lately: %q of member %d", next.action, next.member.id)
	}
	if next := of(big, small, small).next(untouched); next.to.id != 3 {
		t.Errorf("member %d becomes the leader, and member 3 has executed the most", next.to.id)
	}
	// A member that is full does not tell what a compaction has given.
	if next := of(full, full, full).filled().next(past{lately: never, compacted: func(id uint64) bool { return id != 2 }}); next.action != defragment || next.member.id != 3 {
		t.Errorf("after a compaction: %q of member %d", next.action, next.member.id)
	}
}

// TestNeverALeaderOfSeveral draws etcds, and what a compaction would free. A member that leads others is not defragmented, the steps end, and the etcd
// takes writes then unless it has too much data.
func TestNeverALeaderOfSeveral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &view{}
		size := rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "size")
		leader := uint64(rapid.IntRange(1, size).Draw(t, "leader"))
		data := rapid.Int64Range(1, 8*gib).Draw(t, "data")
		for i := range size {
			used := rapid.Int64Range(data, 8*gib).Draw(t, "used")
			v.members = append(v.members, member{id: uint64(i + 1), leads: leader, term: 1, size: rapid.Int64Range(used, 8*gib).Draw(t, "bytes"), inUse: used, quota: 8 * gib})
		}
		if rapid.Bool().Draw(t, "full") {
			v = v.filled()
		}
		defragmented, compacted := map[uint64]bool{}, map[uint64]bool{}
		done := past{lately: func(id uint64) bool { return defragmented[id] }, compacted: func(id uint64) bool { return compacted[id] }}
		wasCompacted := false
		for range maxSteps {
			next := v.next(done)
			switch next.action {
			case nothing:
				if len(v.full) > 0 {
					t.Fatal("nothing is done to an etcd that is full")
				}
				return
			case moveLeader:
				if next.to.id == leader {
					t.Fatal("the leader shall become the leader")
				}
				leader = next.to.id
				for i := range v.members {
					v.members[i].leads = leader
				}
			case defragment:
				if next.member.id == leader && size > 1 {
					t.Fatalf("the leader of %d members is defragmented", size)
				}
				m := &v.members[next.member.id-1]
				if wasCompacted {
					m.inUse = data
				}
				m.size, defragmented[m.id], compacted[m.id] = m.inUse, true, false
			case compact:
				if wasCompacted {
					if float64(data) < scarce*8*gib {
						t.Fatalf("it stays full with %d bytes of data", data)
					}
					return
				}
				wasCompacted = true
				for i := range v.members {
					compacted[v.members[i].id] = true
				}
			case disarm:
				v.full = nil
			}
		}
		t.Fatalf("after %d steps it is not done: %+v", maxSteps, v)
	})
}

func TestView(t *testing.T) {
	listed := func(learner bool, ids ...uint64) []*etcdserverpb.Member {
		all := make([]*etcdserverpb.Member, len(ids))
		for i, id := range ids {
			all[i] = &etcdserverpb.Member{ID: id, IsLearner: learner && i == len(ids)-1, ClientURLs: []string{"https://" + string(rune('a'+i))}}
		}
		return all
	}
	answer := func(id, leader, term, applied uint64) *clientv3.StatusResponse {
		return &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: id}, Leader: leader, RaftTerm: term, RaftAppliedIndex: applied, DbSizeQuota: gib}
	}
	untold := answer(3, 2, 5, 9)
	untold.DbSizeQuota = 0
	const a, b, c, service = "https://a", "https://b/", "https://c", "https://service"
	all := map[string]*clientv3.StatusResponse{a: answer(1, 2, 5, 9), b: answer(2, 2, 5, 9), c: answer(3, 2, 5, 9)}
	with := func(endpoint string, status *clientv3.StatusResponse) map[string]*clientv3.StatusResponse {
		changed := maps.Clone(all)
		if changed[endpoint] = status; status == nil {
			delete(changed, endpoint)
		}
		return changed
	}
	corrupt := []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: etcdserverpb.AlarmType_CORRUPT}}
	for _, test := range []struct {
		name    string
		listed  []*etcdserverpb.Member
		alarms  []*etcdserverpb.AlarmMember
		answers map[string]*clientv3.StatusResponse
		problem string
	}{
		{"all answer", listed(false, 1, 2, 3), nil, all, ""},
		{"several addresses of one", listed(false, 1, 2, 3), nil, with(service, answer(1, 2, 5, 9)), ""},
		{"one does not answer", listed(false, 1, 2, 3), nil, with(a, nil), "of 3 members, 2 answer"},
		{"another answers in its place", listed(false, 1, 2, 3), nil, with(a, answer(4, 2, 5, 9)), "of 3 members, 2 answer"},
		{"one address for all", listed(false, 1, 2, 3), nil, map[string]*clientv3.StatusResponse{service: answer(1, 2, 5, 9)}, "of 3 members, 0 answer"},
		{"a learner", listed(true, 1, 2, 3), nil, all, "a member is being added"},
		{"corrupt", listed(false, 1, 2, 3), corrupt, all, "corrupt"},
		{"no leader", listed(false, 1, 2, 3), nil, map[string]*clientv3.StatusResponse{a: answer(1, 0, 5, 9), b: answer(2, 0, 5, 9), c: answer(3, 0, 5, 9)}, "do not agree on a leader"},
		{"one is cut off", listed(false, 1, 2, 3), nil, with(c, answer(3, 0, 5, 9)), "do not agree on a leader"},
		{"one is cut off and does not know", listed(false, 1, 2, 3), nil, with(c, answer(3, 2, 4, 9)), "do not agree on a leader"},
		{"no quota is told", listed(false, 1, 2, 3), nil, with(c, untold), "does not tell it"},
		{"one is behind", listed(false, 1, 2, 3), nil, with(a, answer(1, 2, 5, 9+2*behind)), "behind"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newView(test.listed, test.alarms, test.answers)
			if test.problem == "" != (v.problem == "") || !strings.Contains(v.problem, test.problem) {
				t.Errorf("the problem is %q, want %q", v.problem, test.problem)
			}
			if v.full = v.filled().full; test.problem != "" && v.next(untouched).action != nothing {
				t.Errorf("although it is full: %q", v.next(untouched).action)
			}
			if test.problem == "" && v.members[0].endpoint != a {
				t.Errorf("member 1 would be addressed at %s", v.members[0].endpoint)
			}
		})
	}
}

func TestConditionOf(t *testing.T) {
	big, small, data := [2]float64{7, 1}, [2]float64{1, 1}, [2]float64{7, 6}
	noQuota := of(big)
	noQuota.members[0].quota = 0
	waits := of([2]float64{8, 8}).filled()
	waits.waits = "it waits for something"
	for _, test := range []struct {
		name     string
		seen     *view
		tellOnly bool
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		{"enough", of([2]float64{4, 1}), false, metav1.ConditionTrue, reasonEnough, "No member"},
		{"low on data", of(small, data, small), false, metav1.ConditionFalse, reasonLow, "A member of the etcd has used more than 80 percent of its quota. Most of that is in use: add a cell"},
		{"a member is missing", of(big, big, big).but("one is away"), false, metav1.ConditionFalse, reasonLow, "waits because one is away"},
		{"low and alone", of(big), false, metav1.ConditionFalse, reasonLow, "left to you"},
		{"by hand", of(big, big, big), true, metav1.ConditionFalse, reasonLow, "one after the other, gives it back"},
		{"full of data", of([2]float64{8, 7.9}).filled(), false, metav1.ConditionFalse, reasonNoSpace, "refuses all writes. Most of that is in use"},
		{"full of revisions", waits, false, metav1.ConditionFalse, reasonNoSpace, "It will be compacted: it waits for something."},
		{"full, and a member is missing", of(big, big, big).filled().but("one is away"), false, metav1.ConditionFalse, reasonNoSpace, "waits because one is away"},
		{"no quota", noQuota, false, metav1.ConditionUnknown, reasonNoQuota, "no quota"},
		{"nobody answers", &view{}, false, metav1.ConditionUnknown, reasonUnreadable, "cannot be asked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := conditionOf(test.seen, test.tellOnly)
			if got.Status != test.status || got.Reason != test.reason || !strings.Contains(got.Message, test.message) {
				t.Errorf("%s for %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
}

// TestFullness has a store that needs its space, and members that do not answer.
func TestFullness(t *testing.T) {
	k := &Keeper{}
	scarceOne := of([2]float64{1, 1}, [2]float64{8, 7.9}, [2]float64{1, 1})
	for _, step := range []struct {
		name string
		seen *view
		full bool
	}{
		{"space is left", of([2]float64{7, 1}), false},
		{"one member has none", scarceOne, true},
		{"that member does not answer", of([2]float64{1, 1}, [2]float64{1, 1}).but("one is away"), true},
		{"all have space again", of([2]float64{1, 1}, [2]float64{1, 1}, [2]float64{1, 1}), false},
		{"a member does not answer", of([2]float64{1, 1}).but("one is away"), false},
	} {
		if k.noteFullness("cell-a", step.seen); (k.Fullness("cell-a") != "") != step.full {
			t.Errorf("%s: %q", step.name, k.Fullness("cell-a"))
		}
	}
	if got := k.Fullness("cell-b"); got != "" {
		t.Errorf("a cell that is not known: %q", got)
	}
}
