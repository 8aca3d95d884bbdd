// Package watchmerge merges the watches of several cells into one.
//
// Merger is the logic: a state machine without goroutines, clocks or connections. Events of the cells go in, events for the client come
// out. Driver is the thin layer around it that reads the streams and reopens those that break.
//
// Each event that comes out carries the version of its object. After events a bookmark carries the position of the whole watch: the
// resourceVersions of all cells. A client may stop there and resume, at any gateway. Nothing can be resumed before all cells have sent
// their initial events, which one bookmark marks.
//
// Without Options.Version events carry the position after them, and initial events the plain resourceVersion of their cell.
//
// # Objects that move
//
// While the topology changes, an object may be in two cells, or move from one to the other. The client must see one object that is never
// deleted, doubled or stepped back. The object's label says which copy counts:
//
//	             old cell                 new cell
//	freeze       migrating: the object as it was
//	copy                                  migrating: the old one counts
//	commit       migrated: the copy counts
//	activate                              no label: the object
//	clean up     deleted, migrated
//
// Events of labelled objects are not shown: only the mover writes them, and it changes only the label. Initial events have to show such
// an object once, from one of its cells.
//
// The cells' streams are read at different speeds, so a later event may arrive earlier. A Dependency prevents an event from overtaking:
// "not before that cell has reached that resourceVersion". The Merger holds the event, and with it the stream of its cell, until the
// dependency is met. Positions are issued only in such an order, so resuming one needs no memory. Initial events have no order: there the
// cells are asked one after the other, the new cell of a move before the old one, and are read until all dependencies are met. The mover
// records both revisions: that of the copy when it commits, and that of the commit when it activates.
package watchmerge
