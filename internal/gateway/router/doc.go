// Package router forwards requests to the control planes that hold their objects: requests for one object to its cell, lists and watches
// to all cells, and everything that is not divided into cells to the hub. Deletions of collections do not arrive here: package protection
// divides them into deletions of single objects.
//
// # While objects move
//
// Package routing decides where a request goes, what to do with the answer and how long to wait. This package performs it (drive.go,
// list.go). Four things keep requests correct while objects move from an old cell to a new one:
//
//   - An object is looked up in the new cell, then in the old one, then in the new one again.
//   - Cells refuse writes that carry an outdated epoch, writes to frozen objects and creations in the old cell (package fence). A refused
//     write is routed again, within a bound.
//   - Cells never refuse reads. That an object is absent, or that a list is complete, counts only after the cell has confirmed the epoch
//     (confirm.go).
//   - Lists and watches read the new cell before the old one and show each object once, by the labels and annotations of the mover
//     (shown.go, moves.go and package watchmerge). Positions are carried forward from one topology to the next.
//
// # The hub as a cell
//
// Bindings, Works and events of templates that live on the hub are there. For these kinds the hub counts as one more cell, with the index
// after the last (hub.go). Three things differ: it has no fence, so nothing is confirmed there and no writer lease is needed; it authorizes
// users itself; and the gateway's own requests carry the identity that it has there, with the rights that an administrator has given it.
package router
