// Package slots says which cell an object lives in.
//
// A namespaced name hashes to one of 16 384 slots; a topology of cells compiles to a table that names, for every slot, its owner
// and the cell that keeps its backup. Routing an object is therefore one hash and one array read, and needs no store.
//
// Slots are given to cells by weighted rendezvous hashing: every cell draws a number for every slot, and the best draw owns it.
// A cell's draw depends on that cell alone, so a cell that joins only takes slots, and the slots of a cell that leaves fall to
// their second best draw, which is the backup cell. The arithmetic is done in integers: floating-point logarithms differ
// between processor architectures, and two gateways that disagree about one slot would split an object's writes.
package slots
