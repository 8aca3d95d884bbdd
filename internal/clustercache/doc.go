// Package clustercache keeps the objects of one kind of many member clusters in little memory, and answers reads of them as an API
// server would.
//
// A Store is filled by one Feed per member, with the encoded objects as they come from a watch, and read with Get, List and Watch.
// Ten million pods are to fit one machine, so an object is kept as a compressed blob and a small fixed-size entry, outside of the heap
// that the garbage collector looks after; what selectors ask for is interned and indexed.
//
// Every change of what clients see is one event with one version, the Store's own: a resourceVersion for clients, but none that any
// member gave. The entries that an event replaced stay until the event leaves the history, so any version in the history can still be
// listed exactly; a page of a list and a resumed watch are the same thing to the Store. Versions before the history, and those that
// another replica or an earlier incarnation gave out, are answered with 410.
//
// Objects of one namespace and name in several members would corrupt every informer if both were shown. The one created first is shown
// (of two created in one second, that of the first cluster by name); the others are shadowed, and found by Get with a cluster.
// When the shown one goes, watchers see it DELETED and the next one ADDED, as if it had been recreated. The rule depends on nothing but the
// objects, so that all replicas agree, and creation times never change, so that it does not flap. Stores that show a share of the members each know the
// names in all, and hear of them at different times; who watches them together asks for the events of contested names. Templates of the federation itself,
// which a feed without a name brings, are shown only while no member has an object of their name.
package clustercache
