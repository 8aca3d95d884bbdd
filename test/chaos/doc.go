// Package chaos tests that a federation stays linearizable while its objects are moved and its processes are killed.
//
// Clients create, read, change and delete objects through several gateways and record each operation with its begin, end and outcome. A
// nemesis lets cells join and leave, changes weights, rolls changes back, and kills or pauses gateways, hub managers, and the API servers
// and etcds of cells and hub. Its seed decides the order. Each disturbance happens at least once per run. Afterwards the history is
// checked: there must be an order of all operations, each between its begin and its end, in which a single store would give the same
// outcomes.
package chaos
