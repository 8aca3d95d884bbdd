// Package slab holds many small things outside of the heap that the garbage collector looks after.
//
// Gigabytes that live for long would otherwise cost twice: the collector lets the heap grow by as much as is live before it looks again.
// An Arena holds byte strings of any length, a Table records of one type. What they hand out are small numbers instead of pointers.
// Nothing here is locked, and what was freed may be overwritten: callers see to both.
package slab
