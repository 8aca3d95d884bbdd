// Package splice merges and rewrites API traffic on the level of bytes.
//
// A gateway in front of several API servers merges their lists, renumbers their watch events and translates the resourceVersions in
// request bodies. Decoding the objects would cost more than everything else it does, would need the Go types of every kind, and would
// lose the fields those types do not know. This package reads only the few bytes it needs, with objbytes, and copies the rest:
//
//   - MergeJSON and MergeProto join lists (and Tables) of several API servers into one, in the order of their storage keys;
//   - EventReader reads the events of a watch, and Event.Append writes one with another resourceVersion;
//   - Body.Rewrite translates the resourceVersions in request bodies, whatever the kind of patch or object.
//
// Responses of API servers are checked as far as they are read; a merged response is as well-formed as its sources. Request bodies are
// rewritten only; the API server validates them. Depth and size of all input are bounded.
package splice
