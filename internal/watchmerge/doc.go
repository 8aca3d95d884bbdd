// Package watchmerge makes one watch of the watches of several cells.
//
// Merger is the logic: a state machine without goroutines, clocks or connections. Events of the cells go in, events for the client
// come out. Driver is the thin part around it that reads streams and reopens those that break.
//
// Each event that comes out carries the position of the whole watch after it: the resourceVersions of all cells, one of which has
// just advanced. A client may stop at any event and resume at its position, at any gateway. The initial events, which begin a watch
// that resumes nothing, carry their cell's plain resourceVersion instead: nothing can be resumed before all cells have sent theirs,
// which one bookmark tells the client.
//
// # Objects that move
//
// While the topology changes, an object may be in two cells, or change from one to the other. The client must see one object that is
// never deleted, doubled or stepped back. An object says by its label what to think of it:
//
//	             old cell                 new cell
//	freeze       migrating: the object as it was
//	copy                                  migrating: the old one counts
//	commit       migrated: the copy counts
//	activate                              no label: the object
//	clean up     deleted, migrated
//
// Events of objects with the label are not shown: only the mover writes those, and it changes nothing but the label. Initial events
// have to show such an object once, from one of its cells.
//
// The cells' streams are read at different speeds, so what happened later may arrive earlier. What must not be overtaken is expressed
// as a Dependency: "not before that cell has reached that resourceVersion". The Merger holds an event, and with it the stream
// of its cell, until its dependency is met. As positions are only ever given out in such an order, no memory is needed to
// resume one. Initial events are in no such order: there the cells are asked one after the other, the new cell of a move before the
// old, and go on until all dependencies are met. The mover knows both revisions when it writes: that of the copy when it commits, and that of the commit when it
// activates.
package watchmerge
