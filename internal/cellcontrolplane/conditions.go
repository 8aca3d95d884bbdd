package cellcontrolplane

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// set sets a condition.
func (r *run) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&r.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: r.plane.Generation, LastTransitionTime: metav1.Time{Time: r.Now()},
	})
}

// say sets a condition that tells what goes on.
func (r *run) say(kind string, is bool, yes, no, message string) {
	if is {
		r.set(kind, metav1.ConditionTrue, yes, message)
		return
	}
	r.set(kind, metav1.ConditionFalse, no, "")
}
