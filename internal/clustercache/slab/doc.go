// Package slab stores many small values outside of the garbage-collected heap.
//
// On the heap, long-lived gigabytes would cost twice: the collector lets the heap double between two collections. An Arena stores byte
// strings of any length, a Table records of one type. Both return small numbers instead of pointers. Nothing is locked, and freed memory
// is overwritten: callers have to synchronize.
package slab
