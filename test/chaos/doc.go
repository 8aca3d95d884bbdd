// Package chaos tests that a federation stays linearizable while its objects are moved, its processes are killed and its network is cut.
//
// Clients create, read, change and delete objects through several gateways and record each operation with its begin, end and outcome. A
// nemesis lets cells join and leave, changes weights, rolls changes back, kills or pauses gateways, hub managers, and the API servers
// and etcds of cells and hub, cuts the links between them, and sets their clocks. Its seed decides the order. Each disturbance happens at least once per run.
// Afterwards the history is checked: there must be an order of all operations, each between its begin and its end, in which a single store
// would give the same outcomes. Two kinds of answers are not in the history: reads and refused writes that the gateway itself calls
// possibly outdated, in a Warning header, and errors with a Retry-After header. Clients repeat the latter, so a write that was done and answered in this way would
// show as a violation.
//
// `cellplane cells verify` has to find nothing then: each object is in its cell only, and its backup cell has a copy.
//
// Failover scenarios fail a cell over during such faults. Objects in a namespace with the durability "replicated" must lose nothing. Others
// may lose their last writes if the cell cannot be reached, and each object that did must be saved as a file with its last value when the
// cell joins again: the check allows exactly these losses. They may also lose deletions. Those are reported if the object still exists when the cell
// joins again, so the check allows each deletion from before the failover to be lost. A cell that can be reached loses nothing, and one that gateways reach is not
// failed over automatically.
//
// Clocks: the nemesis sets the wall clock of one process at a time, by seconds to hours, and some scenarios fail a cell over, or try to, while
// the clocks of gateways or hub managers are wrong. That works on Linux and amd64. The monotonic clock cannot be set: pauses stand for that.
package chaos
