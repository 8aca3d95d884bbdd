// Package chaos proves that a federation keeps its promises while everything in it is moved and killed.
//
// Clients create, read, change and delete objects through several gateways, and note when they asked and what they were told. A nemesis
// lets cells join and leave, changes weights, turns changes back, and kills or pauses gateways, hub managers, the API servers and stores
// of cells and of the hub, in the order that its seed says; each at least once in every run. Afterwards the notes are checked: there
// must be an order of all operations, each between its question and its answer, in which one plain store would have given the same
// answers.
package chaos
