// Package position writes the state of several cells as one resourceVersion.
//
// A list or watch over n cells is at n resourceVersions at once. A position holds all of them in one decimal integer:
//
//	1  eeeeeeeeee  vvvvvvvvvvvvvvvvvvv  vvvvvvvvvvvvvvvvvvv …
//	│      │                └─ 19 digits per cell, in the order of the cells' names: every revision etcd can have
//	│      └─ 10 digits: the epoch of the topology, which says what the cells are
//	└─ so that the integer never has leading zeros
//
// Clients compare resourceVersions as integers of any length. Along one stream every field only grows, so the integer does; and as
// all state is inside, any gateway replica resumes the stream. The shortest position has 30 digits and the longest
// resourceVersion of an API server has 20, so neither is ever taken for the other, and a position compares greater than any
// plain one.
//
// Positions of different epochs compare by their number of cells first. A stream that outlives a change of topology and must stay
// monotone through a cell's removal keeps that cell's field, as zero or unchanged.
package position
