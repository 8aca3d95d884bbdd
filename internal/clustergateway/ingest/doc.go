// Package ingest populates the stores of a cluster-gateway from the members.
//
// Members watches the Clusters of the hub. Each member has a stream per kind: a watch in protobuf that starts with the initial state.
// Objects go into the store as they arrive, still encoded. A stream reads no faster than the store accepts, so that back-pressure
// reaches the member. A stream that ends is resumed from its position. If it cannot be, everything is read again and objects that no
// longer exist are removed at the end, so that watchers see only the differences.
//
// Members are also probed. The objects of a member that does not answer are stale: they stay visible, marked, until the member returns
// or a timeout passes. Members do not delay each other.
package ingest
