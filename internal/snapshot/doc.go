// Package snapshot saves the stores of a federation as one set of files, and restores them.
//
// A set has the etcd of the hub and those of all cells in use, as of about the same time. No change of cells is under way while it is saved, so
// each object is in one cell. The cells are saved before the hub: a namespace that a cell has is known to the hub, unless it has been deleted.
//
// What is restored goes on at a much higher revision and at a later epoch than it was saved at, and has no history. So no version that the
// federation gave out before is taken for another one: clients that hold one list again. The stores of one set belong together. A single
// store is not restored beside others that went on: they would have moved, deleted or copied what it has.
package snapshot
