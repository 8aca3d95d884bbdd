package clustercache

import "time"

// ClusterState is the state of a member.
type ClusterState struct {
	// Name is the member's name.
	Name string
	// Objects counts its objects, shadowed ones included.
	Objects int
	// Shadowed counts those of them that are not shown, as another member has one of the same name.
	Shadowed int
	// Synced tells whether a list of it was complete once.
	Synced bool
	// Stale is since when it cannot be followed, or zero.
	Stale time.Time
}

// Stats say what a Store holds and costs.
type Stats struct {
	// Objects counts the objects, shadowed ones included.
	Objects int
	// Shadowed counts those that are not shown as another member has one of the same name.
	Shadowed int
	// History counts the events that can be continued from.
	History int
	// EncodedBytes is the size of the objects, and CompressedBytes what it takes to hold them, their names and what they are found by.
	EncodedBytes, CompressedBytes int64
	// ReservedBytes is the memory the Store has taken from the system, all in but for a few tables.
	ReservedBytes int64
	// Dictionaries counts the compression dictionaries in use.
	Dictionaries int
	// Watchers counts the watches, and CutWatchers those that were cut for being slow.
	Watchers, CutWatchers int
}
