// Package merge updates an object in a member cluster from the manifest the federation wants there.
//
// It is a three-way merge whose base is kept by the member itself: every write of ours uses the field manager
// "cellplane", so metadata.managedFields says which fields are ours. Fields we own that the manifest no longer has are
// removed; the manifest is merged over the rest; what only the member set (defaults, sidecars, node ports) stays.
//
// Ownership alone cannot tell a field we removed from a default that the member's API server filled in while it
// handled our write, because both count as ours. So a fingerprint of the manifest is stored with it as an
// annotation: while it has not changed, nothing can have been removed, and an update only repairs drift. When it has
// changed, defaults that are dropped along with removed fields are filled in again by the write that follows.
//
// Everything here is a pure function; nothing is read from or written to a cluster.
package merge
