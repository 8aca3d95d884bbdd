// Package slots maps objects to cells.
//
// A namespaced name hashes to one of 16 384 slots. A topology of cells compiles to a table that holds the owner and the backup cell of
// every slot, so routing an object is one hash and one array read, without a store.
//
// Slots are assigned by weighted rendezvous hashing: every cell draws a number for every slot, and the best draw owns it. The draw of a
// cell depends on that cell alone. So a cell that joins only takes slots, and the slots of a cell that leaves go to their second best
// draw, the backup cell. The arithmetic uses integers: floating-point logarithms differ between processor architectures, and two gateways
// that disagree about one slot would split an object's writes.
package slots
