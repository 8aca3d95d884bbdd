package tainteviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// forever is the toleration of a workload that tolerates all taints.
const forever = time.Duration(1<<63 - 1)

// leave returns the taint that first evicts a workload from a cluster, and the time until then; nil and forever if
// there is none. A taint without a time counts from when it was first seen.
func leave(cluster *clusterv1alpha1.Cluster, tolerations []corev1.Toleration, firstSeen func(*corev1.Taint) time.Time, now time.Time) (*corev1.Taint, time.Duration) {
	var first *corev1.Taint
	soonest := forever
	for i := range cluster.Spec.Taints {
		taint := &cluster.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		stays := tolerance(tolerations, taint)
		if stays == forever {
			continue
		}
		since := firstSeen(taint)
		if taint.TimeAdded != nil {
			since = taint.TimeAdded.Time
		}
		if left := since.Add(stays).Sub(now); first == nil || left < soonest {
			first, soonest = taint, left
		}
	}
	return first, soonest
}

// tolerance returns how long a taint is tolerated: the shortest of all matching tolerations.
func tolerance(tolerations []corev1.Toleration, taint *corev1.Taint) time.Duration {
	shortest, matched := forever, false
	for i := range tolerations {
		t := &tolerations[i]
		if !matches(t, taint) {
			continue
		}
		matched = true
		if t.TolerationSeconds != nil {
			shortest = min(shortest, time.Duration(max(0, *t.TolerationSeconds))*time.Second)
		}
	}
	if !matched {
		return 0
	}
	return shortest
}

func matches(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return t.Key != "" && t.Value == taint.Value
	default: // numeric comparisons do not apply to clusters
		return false
	}
}
