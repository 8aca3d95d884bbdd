// Package wire prepares encoded objects of members for the cache.
//
// The cache needs an object's identity, labels, owner and a few fields. A decoder would also build the rest, at twenty times the cost.
// Parse reads what is needed from the protobuf encoding with objbytes. Append writes the object with a resourceVersion that Stamp can
// overwrite, and with annotations added and dropped. Everything else is copied.
//
// Members are trusted with their own objects, not with the cache: malformed objects are refused.
package wire
