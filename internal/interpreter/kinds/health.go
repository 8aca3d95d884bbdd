package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// Numbers reads integer fields of one object and keeps the first error, so that health rules need no error
// handling.
type Numbers struct {
	obj *unstructured.Unstructured
	err error
}

// NumbersOf returns a reader for an object.
func NumbersOf(obj *unstructured.Unstructured) *Numbers { return &Numbers{obj: obj} }

// At returns a field, 0 if it is absent.
func (n *Numbers) At(path ...string) int64 {
	value, _ := n.Maybe(path...)
	return value
}

// Maybe returns a field and whether it is there.
func (n *Numbers) Maybe(path ...string) (int64, bool) {
	value, found, err := fields.Int(n.obj.Object, path...)
	if err != nil && n.err == nil {
		n.err = err
	}
	return value, found
}

// Observed reports whether the status is about the current generation.
func (n *Numbers) Observed() bool {
	return n.At("status", "observedGeneration") == n.At("metadata", "generation")
}

// Verdict returns the health, or the first error met while reading.
func (n *Numbers) Verdict(ok bool) (workv1alpha2.ResourceHealth, error) {
	if n.err != nil {
		return workv1alpha2.ResourceUnknown, n.err
	}
	return Healthy(ok), nil
}

// RolledOut is the health of a workload that replaces its pods: all are of the current revision and available.
func RolledOut(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	n := NumbersOf(obj)
	updated, want := n.At("status", "updatedReplicas"), n.At("spec", "replicas")
	return n.Verdict(n.Observed() && updated >= want && n.At("status", "availableReplicas") >= updated)
}

// RolledOutEverywhere is the health of a workload with a pod per node.
func RolledOutEverywhere(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	n := NumbersOf(obj)
	updated, want := n.At("status", "updatedNumberScheduled"), n.At("status", "desiredNumberScheduled")
	return n.Verdict(n.Observed() && updated >= want && n.At("status", "numberAvailable") >= updated)
}

// RolledOutAbovePartition is the health of a workload with ordered pods. Pods below its partition stay on the old
// revision on purpose.
func RolledOutAbovePartition(obj *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	n := NumbersOf(obj)
	replicas := n.At("spec", "replicas")
	toUpdate := replicas - n.At("spec", "updateStrategy", "rollingUpdate", "partition")
	updated, available := n.At("status", "updatedReplicas"), n.At("status", "availableReplicas")
	return n.Verdict(n.Observed() && updated >= toUpdate && available >= replicas && available >= updated)
}
