package rollout

import "fmt"

// Kind is a kind of workload whose stock controller the planner knows.
type Kind int

// The kinds.
const (
	// Deployment of apps/v1. It has surge and can be paused, and it cannot be granted nothing: its API refuses zero for both bounds.
	Deployment Kind = iota
	// StatefulSet of apps/v1. It replaces pods in place, from the highest ordinal to the partition.
	StatefulSet
	// CloneSet of apps.kruise.io. It has surge, can be paused, and keeps as many old pods as the partition says.
	CloneSet
	// Interpreted is any other kind that an interpreter describes. It has surge and can be paused, and is taken to remove any pods when it is scaled in.
	Interpreted
	// InterpretedInPlace is one that never has more pods than replicas.
	InterpretedInPlace
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case Deployment:
		return "Deployment"
	case StatefulSet:
		return "StatefulSet"
	case CloneSet:
		return "CloneSet"
	case Interpreted:
		return "interpreted kind"
	case InterpretedInPlace:
		return "interpreted kind without surge"
	default:
		return fmt.Sprintf("Kind(%d)", int(k))
	}
}

// surges reports whether the controller may have more pods than replicas.
func (k Kind) surges() bool { return k != StatefulSet && k != InterpretedInPlace }

// pauses reports whether the kind has a field that stops an update.
func (k Kind) pauses() bool { return k != StatefulSet }

// countsUpdated reports whether the partition is a number of pods. For a StatefulSet it is an ordinal, which divides by itself.
func (k Kind) countsUpdated() bool { return k == CloneSet }

// partitions reports whether the kind has a partition.
func (k Kind) partitions() bool { return k == StatefulSet || k == CloneSet }

// keepsAll reports whether a command lets no pod be replaced: its partition keeps all of them.
func (k Kind) keepsAll(c *Command) bool { return k.partitions() && c.Partition >= c.Replicas }

// updatesMore reports whether a command updates pods of the same revision that an earlier one kept.
func (k Kind) updatesMore(before, now *Command) bool {
	if k.countsUpdated() {
		return now.Replicas-now.Partition > before.Replicas-before.Partition
	}
	return now.Partition < before.Partition
}
