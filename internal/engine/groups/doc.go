// Package groups keeps the workloads of an affinity group together, or apart, over all cells.
//
// A group is divided among the cells, because the name of a workload selects its cell. A WorkloadGroup on the hub records where each
// workload of a group is. An engine reads it before it decides, and writes its own part by compare-and-swap before the decision is written
// to the binding. If another cell was faster and the decision does not hold any more, it is made again. So two engines never decide against
// each other, and a group does not grow while the hub is unreachable.
//
// A part that was written for a decision that was not, for example because the engine was killed, is corrected by the engine of the cell
// when it starts. The parts of cells that are gone are removed by the engine of the hub.
package groups
