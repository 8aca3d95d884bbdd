package binding

import (
	"reflect"
	"testing"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/rollout"
)

func workWith(seq int64, command rollout.Command) *cell.Work {
	return &cell.Work{Cluster: "m", Objects: []cell.Object{{Copy: &rollout.Copy{Seq: seq, Command: command}}}}
}

func liveWith(seq int64, command rollout.Command, o rollout.Observation) *rollout.Live {
	o.Seq, o.Revision = seq, command.Revision
	return &rollout.Live{Copy: rollout.Copy{Seq: seq, Command: command}, Observation: o}
}

// A cluster without an entry is taken over with what it may do by its Work, and never with less.
func TestAdoptMember(t *testing.T) {
	told := rollout.Command{Replicas: 4, Surge: 1, Unavailable: 1, Revision: "a"}
	unnumbered := told
	unnumbered.Revision = ""
	newer := rollout.Command{Replicas: 6, Surge: 2, Revision: "b"}
	for _, test := range []struct {
		name   string
		member member
		want   rollout.Entry
	}{
		{
			"at rest", member{work: workWith(1, told), agrees: true, live: liveWith(0, unnumbered, rollout.Observation{Version: 7, Current: true, Pods: 4, Available: 4, Updated: 4})},
			rollout.Entry{Seq: 1, Seen: 7, Command: told, Revisions: []string{"a"}, Loosened: rollout.Envelope{Pods: 4, Available: 4, Updated: 4}},
		},
		{
			"being created", member{work: workWith(1, told), agrees: true, live: liveWith(0, unnumbered, rollout.Observation{Version: 7, Current: true, Pods: 2, Available: 1, Updated: 2})},
			rollout.Entry{Seq: 1, Seen: 7, Command: told, Revisions: []string{"a"}, Loosened: rollout.Envelope{Pods: 4, Available: 1, Updated: 4}},
		},
		{
			"in the middle of an update", member{work: workWith(1, told), agrees: true, live: liveWith(0, unnumbered, rollout.Observation{Version: 7, Current: true, Pods: 5, Available: 4, Updated: 2, Remaining: 3})},
			rollout.Entry{Seq: 1, Seen: 7, Command: told, Revisions: []string{unknown, "a"}, Loosened: rollout.Envelope{Pods: 5, Available: 3, Updated: 4}},
		},
		{
			"with a status of an earlier generation", member{work: workWith(1, told), agrees: true, live: liveWith(0, unnumbered, rollout.Observation{Version: 7, Pods: 4, Available: 4, Updated: 4})},
			rollout.Entry{Seq: 1, Command: told, Revisions: []string{unknown, "a"}, Loosened: rollout.Envelope{Pods: 5, Updated: 4}},
		},
		{
			"that does not have the Work's object yet", member{work: workWith(1, told), live: liveWith(0, newer, rollout.Observation{Version: 7, Current: true, Pods: 6, Available: 6, Updated: 6})},
			rollout.Entry{Seq: 1, Command: told, Revisions: []string{unknown, "a"}, Loosened: rollout.Envelope{Pods: 8, Updated: 4}},
		},
		{
			"whose copy people have scaled", member{work: workWith(1, told), open: true, live: liveWith(0, rollout.Command{Replicas: 6, Surge: 1, Unavailable: 1}, rollout.Observation{Version: 7, Current: true, Pods: 6, Available: 6, Updated: 6})},
			rollout.Entry{Seq: 1, Seen: 7, Command: told, Revisions: []string{"a"}, Loosened: rollout.Envelope{Pods: 4, Available: 4, Updated: 4}},
		},
		{
			"whose copy people hold, and that has not got the Work's command", member{work: workWith(3, told), open: true, live: liveWith(2, told, rollout.Observation{Version: 7, Current: true, Pods: 4, Available: 4, Updated: 4})},
			rollout.Entry{Seq: 3, Command: told, Revisions: []string{unknown, "a"}, Loosened: rollout.Envelope{Pods: 5, Updated: 4}},
		},
		{
			"that does not answer", member{work: workWith(3, told), unreachable: true},
			rollout.Entry{Seq: 3, Command: told, Revisions: []string{unknown, "a"}, Loosened: rollout.Envelope{Pods: 5, Updated: 4}},
		},
		{
			"that has refused the Work", member{work: workWith(1, told), failed: true},
			rollout.Entry{Seq: 1, Command: told, Revisions: []string{unknown, "a"}, Loosened: rollout.Envelope{Pods: 4, Updated: 4}},
		},
		{
			"with a command that a backup lacks", member{work: workWith(3, told), live: liveWith(5, newer, rollout.Observation{Version: 7, Current: true, Pods: 6, Available: 5, Updated: 6})},
			rollout.Entry{Seq: 5, Seen: 7, Command: newer, Revisions: []string{"b"}, Loosened: rollout.Envelope{Pods: 6, Available: 6, Updated: 6}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.member.adopt(rollout.Deployment)
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
			if _, err := (rollout.Ledger{"m": got}).Encode(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The number of an object is what tells whether its cluster has the newest command.
func TestObservationOfMember(t *testing.T) {
	old := rollout.Command{Replicas: 4, Revision: "a"}
	none := rollout.Command{Replicas: 4}
	for _, test := range []struct {
		name   string
		member member
		want   *rollout.Observation
	}{
		{"not known", member{unreachable: true}, nil},
		{"no object", member{work: workWith(2, old), entry: rollout.Entry{Seen: 9}}, &rollout.Observation{Version: 9}},
		{"the first command", member{work: workWith(1, old), agrees: true, live: liveWith(0, none, rollout.Observation{Version: 3}), revision: "b"}, &rollout.Observation{Version: 3, Seq: 1, Revision: "a"}},
		{"the first command, changed by people", member{work: workWith(1, old), open: true, live: liveWith(0, none, rollout.Observation{Version: 3}), revision: "b"}, &rollout.Observation{Version: 3, Seq: 1, Revision: "a"}},
		{"not the first command yet", member{work: workWith(1, old), live: liveWith(0, none, rollout.Observation{Version: 3}), revision: "b"}, &rollout.Observation{Version: 3}},
		{"still the first command", member{work: workWith(2, old), live: liveWith(0, none, rollout.Observation{Version: 3}), revision: "b"}, &rollout.Observation{Version: 3, Seq: 1}},
		{"the newest pod template", member{work: workWith(2, old), live: liveWith(2, old, rollout.Observation{Version: 3}), revision: "a"}, &rollout.Observation{Version: 3, Seq: 2, Revision: newest}},
		{"the pod template of the Work", member{work: workWith(2, old), live: liveWith(2, old, rollout.Observation{Version: 3}), revision: "b"}, &rollout.Observation{Version: 3, Seq: 2, Revision: "a"}},
		{"a pod template that is not stored any more", member{work: workWith(2, rollout.Command{Revision: "b"}), live: liveWith(1, old, rollout.Observation{Version: 3}), revision: "c"}, &rollout.Observation{Version: 3, Seq: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.member.observation(); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// A command that was stored, but whose pod template is gone, is replaced by another one.
func TestUndeliverableCommand(t *testing.T) {
	entry := rollout.Entry{Seq: 3, Command: rollout.Command{Replicas: 4, Unavailable: 1, Revision: "b"}, Revisions: []string{"a", "b"}, Loosened: rollout.Envelope{Pods: 4, Available: 3, Updated: 4}}
	m := member{
		name: "m", target: true, share: 4, copy: &rendered{cluster: "m"}, revision: "c", entry: entry, work: workWith(2, rollout.Command{Replicas: 4, Revision: "a"}),
		live: liveWith(2, rollout.Command{Replicas: 4, Revision: "a"}, rollout.Observation{Version: 5, Current: true, Pods: 4, Available: 4, Updated: 4}),
	}
	in := rollout.Input{Kind: rollout.Deployment, Revision: newest, Bounds: rollout.Bounds{Replicas: 4, Unavailable: 1}, Clusters: []rollout.Cluster{m.cluster()}}
	d := rollout.Plan(in).Decisions[0]
	m.decide(&d)
	if !d.Commanded || m.entry.Seq != 4 || m.entry.Command.Revision != "c" || m.entry.Loosened.Available < 3 {
		t.Errorf("decided %+v, the entry is %+v", d, m.entry)
	}
	m.entry, m.work.Objects[0].Copy.Command.Revision = entry, "b"
	if in.Clusters[0] = m.cluster(); rollout.Plan(in).Decisions[0].Commanded {
		t.Error("a command that the Work has is replaced before it was seen")
	}
}

// The number of a cluster that was left goes on when it is chosen again: it is how late writes are told from new ones.
func TestNumbersGoOn(t *testing.T) {
	m := member{name: "m", target: true, share: 2, copy: &rendered{cluster: "m"}, revision: "b", before: 7}
	in := rollout.Input{Kind: rollout.Deployment, Revision: newest, Bounds: rollout.Bounds{Replicas: 2, Unavailable: 1}, Clusters: []rollout.Cluster{m.cluster()}}
	d := rollout.Plan(in).Decisions[0]
	if m.decide(&d); !d.Commanded || m.entry.Seq != 8 || m.entry.Command.Replicas != 2 || m.entry.Command.Revision != "b" {
		t.Errorf("decided %+v, the entry is %+v", d, m.entry)
	}
}
