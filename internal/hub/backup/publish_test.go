package backup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

func TestCondition(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, test := range []struct {
		name   string
		state  State
		status metav1.ConditionStatus
		reason string
	}{
		{"nothing waits", State{Complete: true}, metav1.ConditionTrue, reasonFollowing},
		{"a change has just come", State{Complete: true, Pending: 3, Oldest: now.Add(-time.Second)}, metav1.ConditionTrue, reasonFollowing},
		{"a backup cell is unreachable", State{Complete: true, Pending: 3, Oldest: now.Add(-time.Minute)}, metav1.ConditionFalse, reasonBehind},
		{"not watched yet", State{}, metav1.ConditionFalse, reasonComparing},
		{"not compared yet", State{Waiting: []string{"cell-b"}}, metav1.ConditionFalse, reasonComparing},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := conditionOf(test.state, now); got.Status != test.status || got.Reason != test.reason {
				t.Errorf("the condition is %s for %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
	before := &cellplanev1alpha1.CellBackup{UpToDateAt: &metav1.Time{Time: now.Add(-time.Hour)}, Revision: 7}
	status := statusOf(State{Complete: true, Revision: 9, Pending: 1, Oldest: now.Add(-time.Minute)}, before, now)
	if !status.UpToDateAt.Time.Equal(now.Add(-time.Minute)) || status.Revision != 9 {
		t.Errorf("it claims to be up to date at %v, revision %d", status.UpToDateAt, status.Revision)
	}
	if status := statusOf(State{Pending: 3}, before, now); !status.UpToDateAt.Equal(before.UpToDateAt) || status.Revision != 7 || status.PendingKeys != 3 {
		t.Errorf("while it is compared it claims to be up to date at %v, revision %d, with %d pending", status.UpToDateAt, status.Revision, status.PendingKeys)
	}
	if status := statusOf(State{}, nil, now); status.UpToDateAt != nil {
		t.Errorf("before it was ever compared it claims to be up to date at %v", status.UpToDateAt)
	}
}
