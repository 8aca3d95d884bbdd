package simulate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// describe returns the class of a node.
func describe(n *corev1.Node) Class {
	c := Class{Labels: maps.Clone(n.Labels), Taints: slices.Clone(n.Spec.Taints), Allocatable: n.Status.Allocatable}
	delete(c.Labels, corev1.LabelHostname)
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if n.Spec.Unschedulable && !slices.ContainsFunc(c.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&cordon) }) {
		c.Taints = append(c.Taints, cordon)
	}
	for i := range c.Taints {
		c.Taints[i].TimeAdded = nil
	}
	return c
}

// name returns a hash of the class that is equal for equal nodes.
func (c *Class) name() string {
	hash := xxhash.New()
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		fmt.Fprintf(hash, "%q=%q,", key, c.Labels[key])
	}
	taints := make([]string, len(c.Taints))
	for i := range c.Taints {
		taints[i] = c.Taints[i].ToString()
	}
	slices.Sort(taints)
	fmt.Fprintf(hash, "%q %t", taints, c.Potential)
	allocatable := amountsOf(c.Allocatable)
	fmt.Fprint(hash, allocatable.fixed)
	for _, key := range slices.Sorted(maps.Keys(allocatable.other)) {
		fmt.Fprintf(hash, "%q=%d,", key, allocatable.other[key])
	}
	return fmt.Sprintf("%016x", hash.Sum64())
}

// LeanNode returns a copy of a node with only the fields that a Model reads.
func LeanNode(n *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Allocatable: n.Status.Allocatable, Conditions: n.Status.Conditions},
	}
}
