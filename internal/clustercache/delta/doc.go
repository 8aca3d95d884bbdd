// Package delta encodes a byte string by its difference from a similar one.
//
// The pods of a workload are alike but for names, UIDs, addresses and timestamps: written as copies from a common template and the bytes
// between them, a pod of four kilobytes takes three hundred bytes, which no general compression of single pods gets near to, and decoding is a few
// dozen copies. What remains between the copies is mostly hexadecimal (UIDs, digests, container IDs), which is packed two digits to the byte.
package delta
