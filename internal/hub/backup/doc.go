// Package backup keeps, for every federated object, a copy in the store of the cell that would own it next.
//
// A source follows the store of one cell: one watch, whose events go to a pair for each cell that keeps some of its slots. A pair first
// compares what its keeper has with the source as it was when the watch began, then writes what the watch brings, many keys in one
// transaction, the newest value of each. Copies lie beside the keeper's own objects, where its API server does not look; nothing but a
// failover brings them to life. Works are not copied: engines make them anew.
//
// Where an object's copy belongs follows from the topology alone (Keeper). While objects move, the cell that has the object says who
// keeps its copy: the keeper before the change for an object in its old cell, the keeper after it for one in its new cell. A copy is
// removed from a keeper that has lost it only after everything is where it belongs.
package backup
