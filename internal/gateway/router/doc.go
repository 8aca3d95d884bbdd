// Package router passes requests on to the control planes that hold what they are about: requests for one object to its cell, lists and
// watches to all cells, and everything that is not cut into cells to the hub. Deletions of collections do not come here: package protection
// takes them apart.
//
// # While objects move
//
// A request is routed by the newest topology that is in force (package topology). Four things keep that right while objects move from an
// old cell to a new one:
//
//   - An object is looked for in the new cell, then in the old one, then once more in the new one (find.go, read.go). It never goes back,
//     so what is in neither is nowhere.
//   - Cells refuse writes by a map that is no longer in force, writes to objects that are on their way, and creations in the cell that is
//     left (package fence). The way of a refused request is found anew, within a bound (write.go, hold.go).
//   - Reads are not refused by anybody. That something is absent, and that a list is complete, is believed only when a cell has
//     accepted the same map afterwards (confirm.go).
//   - Lists and watches read the new cell before the old one and show each object once, by what the mover has written on it
//     (ownership.go, moves.go and package watchmerge). Positions are carried from one topology to the next.
package router
