// Package backup maintains a copy of every federated object in the store of another cell: the one that would own it
// next.
//
// A source watches the store of one cell and passes each change to the pair of the backup cell concerned. A pair
// first compares the backup cell with the source as of the start of the watch, then writes what the watch brings:
// many keys in one transaction, the newest value of each. Copies lie beside the backup cell's own objects, where its
// API server does not look; only a failover turns them into objects. Works are not copied: engines derive them.
//
// The topology alone determines the backup cell of an object (CellFor). While objects move, it depends on the cell
// that holds the object: the backup cell before the change for an object in its old cell, the one after it for an
// object in its new cell. A stale copy is removed only after all backup cells have been compared.
package backup
