package storespace

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
)

// The reasons of the condition StoreSpace.
const (
	reasonEnough     = "Enough"
	reasonLow        = "Low"
	reasonNoSpace    = "NoSpace"
	reasonUnreadable = "Unreadable"
	reasonNoQuota    = "NoQuota"
	reasonFailed     = "CellFailed"
)

// unreadable is the condition if nothing is known.
func unreadable() metav1.Condition {
	return metav1.Condition{Type: names.CellStoreSpace, Status: metav1.ConditionUnknown, Reason: reasonUnreadable, Message: "The etcd of the cell cannot be asked; the hub manager logs why."}
}

// ofFailed is the condition of a cell that has failed.
func ofFailed() metav1.Condition {
	return metav1.Condition{Type: names.CellStoreSpace, Status: metav1.ConditionUnknown, Reason: reasonFailed, Message: "The cell has failed, and nobody looks after its etcd."}
}

// conditionOf returns the condition for what was seen. Its message has nothing that changes all the time.
func conditionOf(seen *view, tellOnly bool) metav1.Condition {
	condition := metav1.Condition{Type: names.CellStoreSpace, Status: metav1.ConditionFalse}
	fullest := seen.fullest()
	switch {
	case len(seen.full) > 0:
		condition.Reason = reasonNoSpace
		condition.Message = "The etcd has used up its quota and refuses all writes. " + seen.remedy(tellOnly)
	case len(seen.members) == 0:
		return unreadable()
	case fullest == nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, reasonNoQuota, "The members of the etcd have no quota, or do not tell it."
	case fullest.has(fullest.size, low):
		condition.Reason = reasonLow
		condition.Message = fmt.Sprintf("A member of the etcd has used more than %.0f percent of its quota. %s", low*100, seen.remedy(tellOnly))
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reasonEnough, fmt.Sprintf("No member of the etcd has used %.0f percent of its quota.", low*100)
	}
	return condition
}

// remedy says what is done, or what to do.
func (v *view) remedy(tellOnly bool) string {
	fullest := v.fullest()
	switch {
	case v.waits != "" && !tellOnly:
		return "It will be compacted: " + v.waits + "."
	case fullest != nil && fullest.has(fullest.inUse, relaxed):
		return "Most of that is in use: add a cell, or raise the quota."
	case tellOnly:
		return "Most of that is not in use: a defragmentation of the members, one after the other, gives it back."
	case v.problem != "":
		return "A defragmentation would give space back. It waits because " + v.problem + "."
	case len(v.members) == 1 && len(v.full) == 0:
		return "Most of that is not in use, and is used again before the etcd grows. A defragmentation would give it back; the cell would wait meanwhile, so it is left to you."
	default:
		return "Its members are defragmented, one after the other."
	}
}
