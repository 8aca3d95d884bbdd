// Package routing decides which cell a request goes to while objects move between cells.
//
// It is pure: no connections, no goroutines, and no clock but the times passed in. A Machine takes a request for one object, a List one
// for a collection. Each returns an Action: a request to send, something to wait for, or a verdict. The caller performs it, passes the
// result to Step and gets the next Action.
//
// The rules, for an object whose slot moves from an old cell to a new one:
//
//   - Look in the new cell first. An object without a rebalance label there is the one.
//   - Otherwise the old cell's object counts, unless it is moved or absent. Then look in the new cell again: an object never goes back,
//     so if it is in neither cell it does not exist.
//   - Reads of a frozen object are served. Writes to it wait, and are refused after a bound.
//   - Absent objects are created in the new cell.
//
// Cells refuse writes that carry an outdated epoch, writes to frozen objects and creations in the old cell. A refused write is routed
// again. Cells never refuse reads, so an absent object or a complete list counts only after the cell has confirmed the epoch. So does a creation
// that has taken long; if it is not confirmed, the object is searched by its UID.
package routing
