// Package objbytes reads and edits the metadata of encoded Kubernetes objects, in JSON and protobuf, without decoding the objects.
//
// It is the one place that knows how objects are encoded: the prefix and envelope of protobuf, the field numbers, and where JSON values
// end. Decoding whole objects would cost many times more, would need the Go types of every kind, and would lose the fields that those
// types do not know.
//
//   - NextField, EachField, EachMember and EachElement walk protobuf messages and JSON values;
//   - Metadata reads an object's metadata;
//   - Edit changes labels, annotations and the resourceVersion of a stored object, byte for byte as an API server would store it;
//   - Pin restricts a write or a deletion to one resourceVersion.
//
// Readers find what the decoders of k8s.io/apimachinery find, or return an error: input with two readings is refused. Readers look only
// at the parts they need, so that they may accept input which a decoder refuses. Depth is bounded, and nothing recurses.
package objbytes
