// Package engine is the federation controllers of one cell.
//
// Spec flows down: detector (template and policy become a binding) → scheduler (clusters onto the binding) → binding
// controller (one Work per cluster, overrides applied) → execution (Work into the member). Status flows up: what is
// seen in members becomes the status of Works, bindings and templates.
//
// The API objects are the durable record of each stage, but the stages hand over in memory: a write puts its answer
// into the engine's picture of the cell, and that wakes the next stage. An engine that starts, or takes over, looks at
// everything once and finds most of it right.
package engine
