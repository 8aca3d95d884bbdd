// Package wire reads and edits encoded Kubernetes objects without decoding them.
//
// A cache needs of an object its identity, its labels, its owner and a few fields; a decoder would build all the rest, too, at twenty
// times the cost. Parse finds what is needed in the protobuf encoding, and Append writes the object anew: with a place for the
// resourceVersion that can be overwritten (see Stamp), with annotations added and others dropped. Whatever else is in the
// object is copied, known or not.
//
// Members are trusted with their own objects, not with the cache: malformed objects are refused, never guessed at.
package wire
