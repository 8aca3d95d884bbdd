// Package clustercache keeps the objects of one kind of many member clusters in little memory, and answers reads of them as an API
// server would.
//
// A Store is populated by one Feed per member, with the encoded objects of a watch, and read with Get, List and Watch. Ten million pods
// have to fit on one machine. So an object is a compressed blob and a small fixed-size entry, outside of the garbage-collected heap;
// what selectors refer to is interned and indexed.
//
// Every change that clients see is one event with one version. Versions are the Store's own: they are resourceVersions to clients, but
// not those of members. The entries that an event replaced stay until the event leaves the history, so that any version in the history
// can be listed exactly, for pages of lists as for resumed watches. Versions older than the history, and those of another replica or an
// earlier start, get 410.
//
// Objects of one namespace and name in several members would corrupt every informer if both were shown. The one created first is shown
// (of two created in the same second, that of the first cluster by name). The others are shadowed; Get with a cluster returns them.
// When the shown one is deleted, watchers see it DELETED and the next one ADDED, as if it had been recreated. The rule depends only on
// the objects, so that all replicas agree, and creation times never change, so that it does not flap. Stores that each show a share of
// the members know the names in all members, but learn of them at different times; a client that merges their watches asks for events of
// contested names. Templates of the federation itself, from the feed without a name, are shown only while no member has an object of
// their name.
package clustercache
