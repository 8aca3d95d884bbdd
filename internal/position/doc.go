// Package position encodes the state of several cells as one resourceVersion.
//
// A list or watch over n cells is at n resourceVersions at once. A position holds all of them in one decimal integer:
//
//	1  eeeeeeeeee  vvvvvvvvvvvvvvvvvvv  vvvvvvvvvvvvvvvvvvv …
//	│      │                └─ 19 digits per cell, in the order of the cells' names: every revision etcd can have
//	│      └─ 10 digits: the epoch of the topology, which defines the cells
//	└─ so that the integer never has leading zeros
//
// Clients compare resourceVersions as integers of any length. Along one stream every field only grows, and so does the integer. A
// position contains all state, so any gateway replica can resume the stream. The shortest position has 30 digits and the longest
// resourceVersion of an API server has 20, so they cannot be confused, and a position compares greater than any plain resourceVersion.
//
// A list or watch that includes the hub has one more field, the last one, for the hub.
//
// Positions of different epochs compare by their number of cells first. A stream that must stay monotone when a cell is removed keeps
// that cell's field, as zero or unchanged.
package position
