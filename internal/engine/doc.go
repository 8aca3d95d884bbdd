// Package engine runs the federation controllers of one cell.
//
// Spec flows down: detector (template and policy become a binding) → scheduler (chooses clusters) → binding controller
// (one Work per cluster, overrides applied) → execution (applies the Work in the member). Status flows up: what is
// observed in members becomes the status of Works, bindings and templates.
//
// The API objects are the durable record of each stage, but the stages hand over in memory: the response to a write goes
// into the engine's cache of the cell, which triggers the next stage. An engine that starts, or becomes the leader,
// reconciles everything once and finds most of it up to date.
package engine
