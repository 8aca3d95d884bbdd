package clustercache

import "time"

// ClusterState is the state of a member.
type ClusterState struct {
	// Name is the member's name.
	Name string
	// Objects counts its objects, shadowed ones included.
	Objects int
	// Shadowed counts those not shown because another member has one of the same name.
	Shadowed int
	// Synced is set after the first complete list.
	Synced bool
	// Stale is since when it cannot be watched, or zero.
	Stale time.Time
}

// Stats are statistics of a Store.
type Stats struct {
	// Objects counts the objects, shadowed ones included.
	Objects int
	// Shadowed counts those not shown because another member has one of the same name.
	Shadowed int
	// History counts the events in the history.
	History int
	// EncodedBytes is the size of the objects, and CompressedBytes that of their stored form with names and indexes.
	EncodedBytes, CompressedBytes int64
	// ReservedBytes is the memory reserved from the system, except for a few tables.
	ReservedBytes int64
	// Dictionaries counts the compression dictionaries in use.
	Dictionaries int
	// Watchers counts the watches, and CutWatchers those that were closed for being too slow.
	Watchers, CutWatchers int
}
