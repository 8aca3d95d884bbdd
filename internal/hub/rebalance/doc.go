// Package rebalance carries out changes of the topology: it moves objects from the cells that owned them to the cells
// that will.
//
// The Controller takes a change through its phases: it fences off the former epoch, runs the Mover, ends the change,
// and later removes the stale copies. The Mover moves the objects of many slots at once. Package handover decides
// what it does in which order; everything that must survive a crash is on the objects.
//
// Why no write is lost is argued in docs/design/cell-migration.md.
package rebalance
