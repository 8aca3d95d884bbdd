package manager

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/hub/replicate"
)

func TestCondition(t *testing.T) {
	conflict := replicate.Obstacle{Kind: "Cluster", Object: "a", Reason: replicate.Conflict, Message: "in the way"}
	foreign := replicate.Obstacle{Kind: "Cluster", Object: "b", Reason: replicate.Foreign, Message: "not a copy"}
	for _, test := range []struct {
		name     string
		state    replicate.Status
		caughtUp bool
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		{name: "no contact", state: replicate.Status{Phase: replicate.OutOfContact, Reason: "no route"}, caughtUp: true, status: metav1.ConditionUnknown, reason: reasonOutOfContact, message: "no route"},
		{name: "of another hub", state: replicate.Status{Phase: replicate.Refused, Reason: "not ours"}, status: metav1.ConditionFalse, reason: reasonAnotherHub, message: "not ours"},
		{name: "syncing", state: replicate.Status{Phase: replicate.Syncing}, caughtUp: true, status: metav1.ConditionFalse, reason: reasonCopying},
		{name: "the first objects", state: replicate.Status{Phase: replicate.Following, Pending: 1, Lag: time.Millisecond}, status: metav1.ConditionFalse, reason: reasonCopying},
		{name: "a change", state: replicate.Status{Phase: replicate.Following, Pending: 1, Lag: time.Second}, caughtUp: true, status: metav1.ConditionTrue, reason: reasonCaughtUp},
		{name: "too slow", state: replicate.Status{Phase: replicate.Following, Pending: 1, Lag: time.Minute}, caughtUp: true, status: metav1.ConditionFalse, reason: reasonCopying},
		{name: "nothing to do", state: replicate.Status{Phase: replicate.Following}, status: metav1.ConditionTrue, reason: reasonCaughtUp},
		{name: "foreign object", state: replicate.Status{Phase: replicate.Following, Obstacles: []replicate.Obstacle{foreign}}, status: metav1.ConditionTrue, reason: reasonCaughtUp},
		{name: "obstacle", state: replicate.Status{Phase: replicate.Following, Obstacles: []replicate.Obstacle{conflict, foreign}}, caughtUp: true, status: metav1.ConditionFalse, reason: reasonObstacles, message: "Cluster a: in the way"},
		{
			name: "many obstacles", state: replicate.Status{Phase: replicate.Following, Obstacles: []replicate.Obstacle{conflict, conflict, conflict, conflict, conflict}},
			status: metav1.ConditionFalse, reason: reasonObstacles, message: "Cluster a: in the way; Cluster a: in the way; Cluster a: in the way; and 2 more",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := condition(test.state, test.caughtUp)
			if got.Status != test.status || got.Reason != test.reason || test.message != "" && got.Message != test.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}
