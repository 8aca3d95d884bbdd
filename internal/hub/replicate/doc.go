// Package replicate keeps a copy of the hub's global objects in every cell: namespaces, definitions, policies, clusters
// and whatever else an engine needs. The hub is the source of truth; nothing is copied back from cells.
//
// It works object by object. Whenever an object changes, on the hub or in a cell, Decide compares what the cell should
// have with what it has, and returns the next step. There is no state besides the objects themselves, so a crash, a lost
// cell or a second replica need no recovery, and a restart writes nothing. Each cell has its own connections, caches,
// queue and workers: a slow or dead cell delays no other.
//
// # What a copy looks like
//
// A copy has the labels, annotations and content of its source, and carries the source's UID in the annotation
// cellplane.io/copied-from-hub. An object without the annotation belongs to somebody else: it is reported and left alone.
// The exceptions are objects that every control plane has, such as the namespace default and the definitions of our own
// API: these are adopted, and never deleted. Owner references and finalizers are not copied: neither the garbage collector
// nor the controllers behind finalizers run in a cell.
//
// # Order
//
// An object waits for its namespace, and its kind for its definition. Namespaces and definitions overtake everything
// else in the queue. A copy that belongs to a former object of the same name is deleted before the new one is created, so
// that watchers see a deletion and a creation.
//
// # Deletion
//
// A copy is deleted as soon as its source is being deleted, even if finalizers keep the source: engines react to that.
// Two kinds differ. A Cluster stays until its source is gone, because engines need it while they clean up; the annotation
// cellplane.io/source-deleted tells them to. A namespace begins to terminate with its source, which makes the cell refuse
// new content. It is removed when its source is gone, which means that the federation's namespace controller has emptied
// it everywhere, and the cell confirms that it is empty. Remaining content is reported, and never deleted from here.
//
// A source that was deleted while no replicator ran is noticed by its stale copies. A namespace among them is inspected
// before it is touched, as it may have content.
//
// To another hub than the one the cells were populated from, for example one restored without its data, all objects would
// seem to be deleted. Each cell therefore stores the UID of its hub's namespace kube-system, and no other hub writes to it.
package replicate
