package rollout

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Live is a workload in a member: what it was told, and how far it is.
type Live struct {
	// Copy is what the object says. Its Seq is 0 if it has no number.
	Copy
	// Observation is its state. The number and the revision are those that it carries.
	Observation Observation
	// Stuck is whether the member's controller has given up waiting for the update.
	Stuck bool
	// Unsure is whether the status does not tell if the workload is at rest. It counts as not at rest; its pods tell ([Live.WithPods]).
	Unsure bool
}

// LiveOf reads a workload in a member. It returns nil for kinds that are not planned.
func LiveOf(obj *unstructured.Unstructured) *Live {
	c := objectCopy(obj)
	if c == nil {
		return nil
	}
	status, _ := obj.Object["status"].(map[string]any)
	count := func(field string) int {
		n, _ := whole64(status[field])
		return n
	}
	version, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	live := &Live{Copy: *c, Observation: Observation{
		Version: version, Seq: c.Seq, Revision: c.Command.Revision,
		Current: int64(count("observedGeneration")) == obj.GetGeneration() && obj.GetDeletionTimestamp() == nil,
		Pods:    count("replicas"), Available: count("availableReplicas"), Updated: count("updatedReplicas"),
	}}
	kind, _ := kindOf(obj)
	live.setRemaining(kind)
	conditions, _ := status["conditions"].([]any)
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		live.Stuck = live.Stuck || condition["type"] == "Progressing" && condition["status"] == "False"
	}
	return live
}

// setRemaining sets how many pods the command has yet to update, as far as the status tells.
func (l *Live) setRemaining(kind Kind) {
	o, c := &l.Observation, &l.Command
	old := max(0, o.Pods-o.Updated)
	o.Remaining = old
	if old == 0 && kind != CloneSet {
		return
	}
	switch kind {
	case StatefulSet:
		if c.Partition > 0 {
			// Of the old pods, some may be below the partition. Which ones, only their ordinals tell.
			o.Remaining = max(1, old-c.Partition)
			l.Unsure = o.Current && o.Pods == c.Replicas && old <= c.Partition
		}
	case CloneSet:
		o.Remaining = min(old, max(0, c.Replicas-c.Partition-o.Updated))
		if l.Unsure = o.Current && o.Pods == c.Replicas && o.Remaining == 0 && o.Pods > 0; l.Unsure {
			o.Terminating = 1 // there may be a pod that is marked for deletion
		}
	}
}

// Labels of pods, by which controllers tell what they do with them.
const (
	podRevisionLabel    = "controller-revision-hash"
	markedDeletionLabel = "apps.kruise.io/specified-delete"
)

// WithPods returns the state of a workload whose status does not tell it, by its pods. They must have been read after the object, which the state is of.
func (l *Live) WithPods(obj *unstructured.Unstructured, pods []*unstructured.Unstructured) *Live {
	kind, _ := kindOf(obj)
	now := *l
	o := &now.Observation
	now.Unsure, o.Remaining, o.Terminating = false, 0, 0
	revision, _, _ := unstructured.NestedString(obj.Object, "status", "updateRevision")
	first, _, _ := unstructured.NestedInt64(obj.Object, "spec", "ordinals", "start")
	there := 0
	for _, pod := range pods {
		switch {
		case kind == CloneSet && pod.GetDeletionTimestamp() != nil: // it is gone, as for the controller
		case kind == CloneSet:
			there++
			if pod.GetLabels()[markedDeletionLabel] == "true" {
				o.Terminating++
			}
		case pod.GetDeletionTimestamp() != nil:
			o.Terminating++
		default:
			there++
			if at := ordinalOf(pod) - int(first); at < 0 || at >= l.Command.Replicas || at >= l.Command.Partition && pod.GetLabels()[podRevisionLabel] != revision {
				o.Remaining++
			}
		}
	}
	if there != l.Command.Replicas {
		o.Remaining = max(1, o.Remaining)
	}
	return &now
}

// ordinalOf returns the ordinal of a pod of a StatefulSet, -1 if its name has none.
func ordinalOf(pod *unstructured.Unstructured) int {
	name := pod.GetName()
	ordinal, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return ordinal
}

// Short reports whether pods that the object asks for are not available.
func (l *Live) Short() bool { return l.Observation.Available < l.Command.Replicas }

// Progressed reports whether two readings differ in what a plan depends on.
func (l *Live) Progressed(before *Live) bool {
	if l == nil || before == nil {
		return l != before
	}
	a, b := *l, *before
	a.Observation.Version, b.Observation.Version = 0, 0
	return a != b
}
