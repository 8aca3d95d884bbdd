// Package handover decides in which order the objects of a slot move from one cell to another. It does no I/O, starts
// no goroutines and reads no clock.
//
// state.go names the next step of one object, given what both cells hold of it. slot.go orders the steps of all
// objects of a slot: a Slot returns the actions that may be taken now, and is given their results. What must survive
// a crash is on the objects themselves, so a new Slot continues where a former one was stopped.
//
// The driver is rebalance.Mover. Why no write is lost is argued in docs/design/cell-migration.md.
package handover
