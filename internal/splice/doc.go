// Package splice merges and rewrites API traffic on the level of bytes.
//
// A gateway in front of several API servers joins their lists, renumbers their watch events and translates the resourceVersions in
// request bodies. Doing so on decoded objects would cost more than all the rest of its work, would need the Go types of every
// kind, and would lose the fields those types do not know. This package looks only at the few bytes it needs, in JSON as in
// protobuf, and copies the rest:
//
//   - MergeJSON and MergeProto join lists (and Tables) of several API servers into one, in the order of their storage keys;
//   - EventReader reads the events of a watch, and Event.Append writes one with another resourceVersion;
//   - Body.Rewrite translates the resourceVersions in request bodies, whatever the kind of patch or object.
//
// What API servers send is checked as far as it is looked at; a merged answer is as well-formed as the answers it was made of. What
// clients send is only rewritten, and left to the API server behind to judge. Depth and size of everything read are bounded.
package splice
