// Package replicate keeps a copy of the hub's global objects in every cell: namespaces, definitions, policies, clusters
// and whatever else an engine needs. The hub is the truth and cells are never read back from.
//
// It works object by object. Whenever an object changes, on the hub or in a cell, Decide compares what the cell should
// have with what it has, and names the one thing to do next. There is no state besides the objects themselves, so that
// a crash, a lost cell or a second replica need no recovery of their own, and a restart writes nothing. Each cell has
// connections, caches, a queue and workers of its own: one that is slow or dead holds up nobody else.
//
// # What a copy looks like
//
// A copy has the labels, annotations and content of its source, and carries the source's UID in the annotation
// cellplane.io/copied-from-hub. What lacks the annotation is somebody else's: it is reported and left alone. The
// exceptions are what every control plane has by itself, such as the namespace default and the definitions of our own
// API: these are adopted, and never deleted. Owner references and finalizers are not copied; neither garbage collection
// nor the controllers behind finalizers run in a cell.
//
// # Order
//
// An object waits for its namespace, and its kind for its definition. Namespaces and definitions overtake everything
// else in the queue. A copy that belongs to a former object of the same name is deleted before the new one is made, so
// that whoever watches sees one go and another come.
//
// # Deletion
//
// A copy is deleted as soon as its source is being deleted, whether or not finalizers hold the source back: engines
// react to that. Two kinds differ. A Cluster stays until its source is gone, since engines need it while they clean up;
// the annotation cellplane.io/source-deleted tells them to. A namespace is put into its terminating phase with its
// source, which makes the cell refuse new content, and goes when two things are true: the source is gone, which
// means that the federation's namespace controller has emptied it everywhere, and the cell confirms that it is empty.
// What is left in it is reported, and never deleted from here.
//
// A source that vanished while nobody watched is noticed by the copies that it left behind. A namespace among them is
// looked into before it is touched at all, as it may hold content.
//
// A hub that is not the one the cells were filled from, for example one restored without its data, would look as if
// everything had been deleted. Each cell therefore remembers the hub by the UID of its namespace kube-system, and is not
// touched by another one.
package replicate
