// Package rollout plans the rolling update of a workload over many clusters, so that the bounds of its template (maxSurge, maxUnavailable,
// partition) hold for all clusters together. It is a pure function: no clients, no clock.
//
// # The idea
//
// A cluster does not act at once, and what it does is known late. So the planner never asks what a cluster has, but what it can do at
// most: its [Envelope]. That is the most pods, the fewest available pods and the most updated pods that any command which may be in force
// allows, whenever it arrives. The invariant:
//
//	Before a command leaves for a cluster, the sums of all envelopes, with this command, are within the bounds, or the
//	command allows its cluster nothing that commands in force do not allow already.
//
// An envelope gets looser by a command, and tighter when the cluster is seen at rest: the controller has seen the newest command, and has
// nothing left to do. Nothing else tightens it. So delays, crashes, outdated caches and second writers cannot break a bound. The argument
// is in docs/design/rollout.md, and package controllermodel is what it is tested against.
//
// # What must be stored, and in which order
//
// The [Ledger] has one [Entry] per cluster: the newest command with its number, and the envelope since the last rest. The caller
//
//  1. reads the ledger, an annotation of the binding, and calls [Plan];
//  2. if there are commands, writes the whole ledger with the binding's resourceVersion. If that fails, another engine has planned;
//  3. writes the Works of clusters whose number in the ledger is higher than that on the Work, with the Work's resourceVersion;
//  4. applies a Work to its member only if the number on the member's object is not higher.
//
// Every step can be repeated, by any engine. A command that is in the ledger counts from step 2 on, whether or not it ever arrives. Works
// are derived from the ledger and the stored revisions of the template. So the binding carries all state: it survives the death of an
// engine and a change of leader, and moves with the workload to another cell. If a cell fails over to a backup that is older than the
// last commands, members show higher numbers than the ledger: [Plan] stops until the caller has adopted them ([Adopt]).
//
// An entry stays in the ledger for as long as the binding exists, even if the cluster has no pods any more: its number tells a late write
// from a new one.
//
// Annotations do not change the generation of an object, but a command comes with a change of the spec. So an object whose status has its
// generation observed has its number observed, too.
package rollout
