package backup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCondition(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, test := range []struct {
		name     string
		standing Standing
		status   metav1.ConditionStatus
		reason   string
	}{
		{"nothing waits", Standing{Complete: true}, metav1.ConditionTrue, reasonFollowing},
		{"a change has just come", Standing{Complete: true, Pending: 3, Oldest: now.Add(-time.Second)}, metav1.ConditionTrue, reasonFollowing},
		{"a keeper is away", Standing{Complete: true, Pending: 3, Oldest: now.Add(-time.Minute)}, metav1.ConditionFalse, reasonBehind},
		{"not compared yet", Standing{Waiting: []string{"cell-b"}}, metav1.ConditionFalse, reasonComparing},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := conditionOf(test.standing, now); got.Status != test.status || got.Reason != test.reason {
				t.Errorf("the condition is %s for %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
	if status := statusOf(Standing{Pending: 1, Oldest: now.Add(-time.Minute)}, now); !status.UpToDateAt.Time.Equal(now.Add(-time.Minute)) {
		t.Errorf("it claims to be up to date at %v", status.UpToDateAt)
	}
}
