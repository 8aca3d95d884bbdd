// Package lua runs the scripts of interpreter customizations.
//
// A script is written by a user of the federation and runs inside its control plane, so the package assumes that it
// is hostile. It sees the base functions that cannot load code or touch metatables, table, string, math, the parts of
// os that tell the time, and the kube library; nothing else. Every call starts with fresh globals. A call may take
// a bounded number of steps, a bounded amount of memory and a bounded time; what exceeds a bound ends in an error,
// and catching that error does not help the script.
//
// Memory is bounded by accounting rather than by the runtime: scripts are rewritten before they are compiled, so that
// each operation whose cost its operands decide (concatenation, table constructors, stores under computed keys) passes
// through a function that charges for it, and the library functions charge for what they build. What remains costs
// a small constant per step.
package lua
