// Package cell is an engine's picture of its cell: what the cell's API server holds, kept up to date by watching, and
// the writes that go back to it.
//
// Stages of the engine hand over in memory: a write puts its answer into the picture at once, so that the next stage
// need not wait for the watch to say the same. Versions decide what is newer, so that late news never undoes it.
//
// Only what is asked for often is kept, condensed: templates as bytes, Works without their manifests.
package cell
