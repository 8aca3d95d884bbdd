// Package delta encodes a byte string by its difference from a similar one.
//
// The pods of a workload differ only in names, UIDs, addresses and timestamps. Written as copies from a common template and the bytes
// between them, a pod of four kilobytes takes three hundred bytes, far less than with general compression of single pods, and decoding is
// a few dozen copies. The bytes between the copies are mostly hexadecimal (UIDs, digests, container IDs) and packed, two digits per byte.
package delta
