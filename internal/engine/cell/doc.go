// Package cell is an engine's cache of its cell: the objects of the cell's API server, kept up to date by watches, and
// the writes to it.
//
// Stages of the engine hand over in memory: the response to a write goes into the cache at once, so that the next stage
// need not wait for the watch event. Resource versions decide which is newer, so that a late event never undoes a
// write.
//
// Objects are cached in condensed form: templates as bytes, Works without their manifests.
package cell
