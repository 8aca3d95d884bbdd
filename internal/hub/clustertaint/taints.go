package clustertaint

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

var (
	notReady    = corev1.Taint{Key: names.NotReadyTaint, Effect: corev1.TaintEffectNoSchedule}
	unreachable = corev1.Taint{Key: names.UnreachableTaint, Effect: corev1.TaintEffectNoSchedule}
)

// taints is the list of a Cluster while it is edited.
type taints struct {
	list []corev1.Taint
	now  time.Time
}

// apply updates the taints of a Cluster from its conditions and the given policies, which all target it.
func (t *taints) apply(conditions []metav1.Condition, policies []*policyv1alpha1.ClusterTaintPolicy) {
	if ready := meta.FindStatusCondition(conditions, names.ClusterReady); ready != nil {
		t.want(ready.Status == metav1.ConditionFalse, notReady)
		t.want(ready.Status == metav1.ConditionUnknown, unreachable)
	}
	for _, policy := range policies {
		if matchAll(policy.Spec.AddOnConditions, conditions) {
			for _, taint := range policy.Spec.Taints {
				t.add(corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
			}
		}
		if matchAll(policy.Spec.RemoveOnConditions, conditions) {
			for _, taint := range policy.Spec.Taints {
				t.remove(corev1.Taint{Key: taint.Key, Effect: taint.Effect})
			}
		}
	}
}

func (t *taints) want(wanted bool, taint corev1.Taint) {
	if wanted {
		t.add(taint)
	} else {
		t.remove(taint)
	}
}

// add adds a taint. It replaces one that differs only in its value.
func (t *taints) add(taint corev1.Taint) {
	if taint.Effect == corev1.TaintEffectNoExecute {
		taint.TimeAdded = &metav1.Time{Time: t.now}
	}
	i := t.find(taint)
	switch {
	case i < 0:
		t.list = append(t.list, taint)
	case t.list[i].Value != taint.Value:
		t.list[i] = taint
	}
}

func (t *taints) remove(taint corev1.Taint) {
	if i := t.find(taint); i >= 0 {
		t.list = slices.Delete(t.list, i, i+1)
	}
}

func (t *taints) find(taint corev1.Taint) int {
	return slices.IndexFunc(t.list, func(other corev1.Taint) bool { return other.MatchTaint(&taint) })
}

// matchAll reports whether all requirements are met; an empty list is never met.
func matchAll(requirements []policyv1alpha1.MatchCondition, conditions []metav1.Condition) bool {
	for _, requirement := range requirements {
		found := meta.FindStatusCondition(conditions, requirement.ConditionType)
		if found == nil {
			return false
		}
		listed := slices.Contains(requirement.StatusValues, found.Status)
		if listed != (requirement.Operator == policyv1alpha1.MatchConditionOpIn) {
			return false
		}
	}
	return len(requirements) > 0
}

// difference describes what has been added and removed, for an event.
func difference(before, after []corev1.Taint) (added, removed []string) {
	only := func(these, those []corev1.Taint) (texts []string) {
		for _, taint := range these {
			if !slices.ContainsFunc(those, func(other corev1.Taint) bool { return other.MatchTaint(&taint) && other.Value == taint.Value }) {
				texts = append(texts, taint.ToString())
			}
		}
		return texts
	}
	return only(after, before), only(before, after)
}

// targets returns the policies that target a Cluster, in the order in which they apply.
func targets(cluster *clusterv1alpha1.Cluster, policies []compiled) []*policyv1alpha1.ClusterTaintPolicy {
	var all []*policyv1alpha1.ClusterTaintPolicy
	for i := range policies {
		if policies[i].matcher.Matches(cluster) {
			all = append(all, policies[i].policy)
		}
	}
	return all
}
