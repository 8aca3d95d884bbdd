package backup

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

func TestCondition(t *testing.T) {
	now := time.Unix(1000, 0)
	complete := State{Complete: true, Proven: now.Add(-time.Second)}
	with := func(change func(*State)) State {
		state := complete
		change(&state)
		return state
	}
	for _, test := range []struct {
		name   string
		state  State
		status metav1.ConditionStatus
		reason string
	}{
		{"nothing waits", complete, metav1.ConditionTrue, reasonFollowing},
		{"a change has just come", with(func(s *State) { s.Pending, s.Oldest = 3, now.Add(-time.Second) }), metav1.ConditionTrue, reasonFollowing},
		{"a change waits for long", with(func(s *State) { s.Pending, s.Oldest = 3, now.Add(-time.Minute) }), metav1.ConditionFalse, reasonBehind},
		{"nothing has been proved for long", with(func(s *State) { s.Proven = now.Add(-time.Minute) }), metav1.ConditionFalse, reasonBehind},
		{"nothing has been proved", State{Complete: true}, metav1.ConditionFalse, reasonComparing},
		{"there is no backup cell", State{Complete: true, Alone: true}, metav1.ConditionFalse, names.ReasonNoBackupCell},
		{"the cell cannot be read", with(func(s *State) { s.Unread = now.Add(-time.Second) }), metav1.ConditionUnknown, reasonSourceUnreadable},
		{"a backup cell does not answer", with(func(s *State) { s.Silent, s.SilentSince = []string{"cell-b"}, now }), metav1.ConditionUnknown, reasonBackupUnreadable},
		{"a key is missing", State{Problem: problem{reasonKeys, "a key is missing"}, Unread: now}, metav1.ConditionFalse, reasonKeys},
		{"a backup cell is full", State{Problem: problem{reasonNoRoom, "it is full"}, ProblemIn: "cell-b"}, metav1.ConditionFalse, reasonNoRoom},
		{"the cell has failed", State{Failed: true}, metav1.ConditionFalse, reasonFailed},
		{"the store has been replaced", State{Replaced: true}, metav1.ConditionFalse, reasonReplaced},
		{"not watched yet", State{}, metav1.ConditionFalse, reasonComparing},
		{"never read", State{Unread: now}, metav1.ConditionUnknown, reasonSourceUnreadable},
		{"not compared yet", State{Waiting: []string{"cell-b"}}, metav1.ConditionFalse, reasonComparing},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := conditionOf(test.state, now); got.Status != test.status || got.Reason != test.reason {
				t.Errorf("the condition is %s for %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
	if text := conditionOf(State{Unread: now}, now).Message; !strings.Contains(text, "since "+now.UTC().Format(time.RFC3339)) {
		t.Errorf("the message does not say since when: %s", text)
	}
	before := &cellplanev1alpha1.CellBackup{UpToDateAt: &metav1.Time{Time: now.Add(-time.Hour)}, Revision: 7}
	status := statusOf(State{Complete: true, Revision: 9, Proven: now.Add(-time.Minute)}, before)
	if !status.UpToDateAt.Time.Equal(now.Add(-time.Minute)) || status.Revision != 9 {
		t.Errorf("it claims to be up to date at %v, revision %d", status.UpToDateAt, status.Revision)
	}
	for _, unproved := range []State{{Pending: 3}, {Complete: true, Pending: 3}} {
		if status := statusOf(unproved, before); !status.UpToDateAt.Equal(before.UpToDateAt) || status.Revision != 7 || status.PendingKeys != 3 {
			t.Errorf("without a proof it claims to be up to date at %v, revision %d, with %d pending", status.UpToDateAt, status.Revision, status.PendingKeys)
		}
	}
	if status := statusOf(State{Failed: true}, before); status != *before {
		t.Errorf("of a failed cell the figures are %v", status)
	}
	if status := statusOf(State{}, nil); status.UpToDateAt != nil {
		t.Errorf("before it was ever compared it claims to be up to date at %v", status.UpToDateAt)
	}
}

// TestProblemIn has several backup cells with problems. The same is always reported, or the condition would change every time.
func TestProblemIn(t *testing.T) {
	s := &source{pairs: map[slots.Index]*pair{}}
	for i, name := range []string{"cell-d", "cell-b", "cell-c", "cell-e"} {
		p := newPair("cell-a", &cellstore.Store{Cell: name}, 1, 1)
		if p.problem = (problem{reasonKeys, "no key of " + name}); name == "cell-b" {
			p.problem = problem{}
		}
		s.pairs[slots.Index(i)] = p
	}
	c := &Controller{sources: map[string]*source{"cell-a": s}}
	for range 50 {
		state := c.States()["cell-a"]
		if text := conditionOf(state, time.Now()).Message; !strings.Contains(text, "to the backup cell cell-c: no key of cell-c") {
			t.Fatal(text)
		}
	}
}

// TestFailedCell has a topology with a cell that has failed. Nothing follows it, and yet it has a state, or its Cell would say for ever that it is
// backed up.
func TestFailedCell(t *testing.T) {
	c := &Controller{}
	if states := c.statesAndFailed(); len(states) != 0 {
		t.Fatalf("before there is a topology, the states are %v", states)
	}
	c.Set(compiledAs(t, 2, slots.Cell{Name: "cell-a", State: slots.Failed}, slots.Cell{Name: "cell-b"}))
	if states := c.statesAndFailed(); !states["cell-a"].Failed || states["cell-b"].Failed {
		t.Errorf("the states are %v", states)
	}
}
