package cellstore

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// metaVersion is the number of the resourceVersion in an object's metadata.
const metaVersion protowire.Number = 6

// WithoutVersion returns an object as an API server has served it without its resourceVersion, as objects are stored. The encoding is
// that of the value.
func WithoutVersion(served []byte) ([]byte, error) {
	encoding, err := encodingOf(served)
	if err != nil {
		return nil, err
	}
	var value []byte
	if encoding == encodingProto {
		value, err = withoutVersionProto(served)
	} else {
		value, err = withoutVersionJSON(served)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a served object: %w", err)
	}
	return value, nil
}

func withoutVersionProto(served []byte) ([]byte, error) {
	envelope, object, metadata, err := cutProto(served)
	if err != nil {
		return nil, err
	}
	raw := replace(object, objectMetadata, assemble(nil, replace(metadata, metaVersion, nil)))
	return assemble(slices.Clone(protoPrefix), replace(envelope, unknownRaw, assemble(nil, raw))), nil
}

func withoutVersionJSON(served []byte) ([]byte, error) {
	_, metadata, err := cutJSON(served)
	if err != nil {
		return nil, err
	}
	var members []entry
	for _, m := range metadata.members {
		if m.key != "resourceVersion" {
			members = append(members, entry{m.key, m.whole.Of(served)})
		}
	}
	value := append(slices.Clone(served[:metadata.whole.Start]), join(members)...)
	return append(value, served[metadata.whole.End:]...), nil
}
