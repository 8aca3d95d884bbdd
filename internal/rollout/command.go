package rollout

import "slices"

// Command is what a cluster is told to do: the fields of its copy of the workload that the planner decides.
type Command struct {
	// Replicas is the number of replicas.
	Replicas int
	// Surge, Unavailable and Partition are the bounds for this cluster, in pods.
	Surge, Unavailable, Partition int
	// Revision names the pod template.
	Revision string
	// Paused stops an update. A StatefulSet is stopped by its partition instead.
	Paused bool
}

// Entry is what the ledger records about one cluster: the newest command, and what it and the earlier ones may still cause.
type Entry struct {
	// Seq numbers the commands of a cluster, from 1. Zero means that the workload has never been in this cluster.
	Seq int64
	// Command is the newest command. It may not have been delivered yet.
	Command Command
	// Loosened is the envelope of all commands since the cluster was last seen at rest.
	Loosened Envelope
	// Seen is the version of the newest observation that the entry is based on. An older one does not count: it could show pods as
	// available that the update has removed since.
	Seen int64
	// Revisions are the revisions that pods of this cluster may have, in the order in which they were commanded. If there are [mostRevisions], pods may have any.
	Revisions []string
}

// mostRevisions is how many revisions an entry names. A partition that stays for long keeps old pods through many updates.
const mostRevisions = 8

// mixed reports whether there may be pods of different revisions.
func (e *Entry) mixed() bool { return len(e.Revisions) > 1 }

// may reports whether there may be pods of a revision.
func (e *Entry) may(revision string) bool {
	return len(e.Revisions) >= mostRevisions || slices.Contains(e.Revisions, revision)
}

// Observation is one reading of a member's object, metadata and status together. Where a status does not tell terminating pods apart, as that
// of a StatefulSet does not, they count as pods that remain to be updated: status.replicas − status.updatedReplicas has both.
type Observation struct {
	// Version is the resourceVersion of the object in the member. It only grows.
	Version int64
	// Seq is the number of the command that the object carries.
	Seq int64
	// Revision is the revision of the object; empty if there is none.
	Revision string
	// Current is whether the status is of this object: its observedGeneration is the object's generation.
	Current bool
	// Pods is the number of pods, without those that are terminating.
	Pods int
	// Terminating is the number of pods that are to go and whose place is still taken: those of a StatefulSet that are terminating, and those that a CloneSet has
	// marked for deletion. The status of a CloneSet does not tell; its pods do.
	Terminating int
	// Available is the number of available pods.
	Available int
	// Updated is the number of pods that have the object's revision.
	Updated int
	// Remaining is how many pods the object's command has yet to update, apart from missing ones. For a Deployment these are the pods
	// that are not updated, and for a CloneSet those that exceed the partition. A StatefulSet with a partition has to be asked for its
	// pods, by ordinal: some below the partition may have the revision ([Live.WithPods]).
	Remaining int
}

// Cluster is one cluster of a workload.
type Cluster struct {
	// Name is the cluster's name.
	Name string
	// Share is how many replicas the scheduler wants here.
	Share int
	// Chosen is whether the cluster should have a copy even without replicas.
	Chosen bool
	// Entry is the cluster's part of the ledger.
	Entry Entry
	// Observed is the newest observation; nil if there is none. That there is no object is an observation too, with the number 0.
	Observed *Observation
	// Unreachable is whether the cluster does not answer.
	Unreachable bool
	// Lost is whether the cluster has been given up: its replicas were moved elsewhere because it failed. Its pods do not count any more.
	Lost bool
	// Refused is whether the cluster has refused the newest command: its quota, a webhook or its API does not allow it. It may be
	// replaced by another one then.
	Refused bool
	// Failing is whether pods of the cluster have been unavailable for longer than the progress deadline. They may be replaced then, even
	// while too few pods are available.
	Failing bool
	// Taken is set while the copy is out of the federation's hands.
	Taken *Taken
	// Hold is why the cluster may not begin an update yet; empty if it may. Stages set it.
	Hold string
}
