package clusterstatus

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the condition Ready.
const (
	reasonReady         = "ClusterReady"
	reasonNotReady      = "ClusterNotReady"
	reasonNotReachable  = "ClusterNotReachable"
	reasonUnknown       = "ClusterStatusUnknown"
	reasonNeverReported = "ClusterStatusNeverUpdated"
)

// readiness debounces the condition Ready: a short failure must not move all workloads of a member, and a flapping member
// must not get them back each time.
type readiness struct {
	status metav1.ConditionStatus // last seen
	since  time.Time              // when it was first seen without interruption
}

// decide returns the condition to write: the observed one, or the current one until the change has lasted long enough.
func (r *readiness) decide(now time.Time, current *metav1.Condition, observed metav1.Condition, options *Options) metav1.Condition {
	if observed.Status != r.status {
		r.status, r.since = observed.Status, now
	}
	if current == nil || current.Status == observed.Status {
		return observed
	}
	threshold := options.FailureThreshold
	if observed.Status == metav1.ConditionTrue {
		threshold = options.SuccessThreshold
	}
	if now.Sub(r.since) < threshold {
		return *current
	}
	return observed
}
