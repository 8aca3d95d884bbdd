// Package ingest fills the stores of a cluster-gateway from the members.
//
// Members follows the Clusters of the hub. Each member has a stream per kind: a watch in protobuf that begins with everything there is,
// whose objects go into the store as they come, encoded as they are. What cannot be taken in yet is not read yet, so that a member never
// sends faster than the store takes. A stream that ends is resumed where it ended; one that cannot be is begun again, and what is no
// longer there leaves at its end, so that watchers see differences and nothing else.
//
// A member is also asked for signs of life. One that gives none is stale: its objects stay, marked, until it is back or the time for
// that is over. Members do not wait for each other.
package ingest
