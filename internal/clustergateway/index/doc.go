// Package index keeps the objects that ResourceRegistries select in indexes of search engines.
//
// An indexer follows the store of one kind as a client of it, so that caching is not delayed by a search engine. It sends changes in
// bulks. An object of which there are several changes is sent once, and no more is held than one bulk: what the search engine has not
// taken stays in the history of the store.
//
// The documents of a cluster are compared with its objects when the indexer starts, when the cluster is reachable again, when the history
// was lost, when other namespaces are selected, and every hour. Only documents of another version are written, and those without an object
// deleted. Nothing is deleted for a cluster that cannot be watched: its objects may leave the store, but its documents stay.
//
// Several replicas write the same documents. Each document has the resourceVersion of its object as version, so that an older one never
// replaces a newer one.
package index
