package router

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/splice"
)

// metaResourceVersion is the number of the field in protobuf.
const metaResourceVersion = 6

// pin makes a request one for an object that still has a resourceVersion, unless it already names one. It is needed where a cell
// could not refuse to change an object that has begun to move.
func pin(mediaType string, body []byte, version string) ([]byte, error) {
	switch mediaType {
	case splice.ProtobufContentType:
		return pinProto(body, version), nil
	case "application/json-patch+json":
		return pinPatch(body, version)
	case "application/yaml", "application/apply-patch+yaml":
		converted, err := yaml.YAMLToJSON(body)
		if err != nil {
			return body, nil //nolint:nilerr // the API server answers what it cannot read
		}
		return pinJSON(converted, version)
	default:
		return pinJSON(body, version)
	}
}

func pinJSON(body []byte, version string) ([]byte, error) {
	var object, metadata map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil || object == nil {
		return body, nil // the API server answers what it cannot read
	}
	if raw := object["metadata"]; raw != nil && json.Unmarshal(raw, &metadata) != nil {
		return body, nil
	}
	if metadata == nil {
		metadata = map[string]json.RawMessage{}
	}
	if own := metadata["resourceVersion"]; len(own) > 0 && string(own) != `""` && string(own) != "null" {
		return body, nil
	}
	var err error
	if metadata["resourceVersion"], err = json.Marshal(version); err != nil {
		return nil, err
	}
	if object["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// pinPatch lets a JSON patch begin with the version: an operation of its own that sets another comes later.
func pinPatch(body []byte, version string) ([]byte, error) {
	var operations []json.RawMessage
	if json.Unmarshal(body, &operations) != nil {
		return body, nil
	}
	operation, err := json.Marshal(map[string]string{"op": "add", "path": "/metadata/resourceVersion", "value": version})
	if err != nil {
		return nil, err
	}
	return json.Marshal(append([]json.RawMessage{operation}, operations...))
}

func pinProto(body []byte, version string) []byte {
	if !bytes.HasPrefix(body, protobufMagic) {
		return body
	}
	return appendRewritten(bytes.Clone(protobufMagic), body[len(protobufMagic):], []protowire.Number{unknownRaw, objectMetadata}, func(metadata []byte) []byte {
		var own []byte
		eachBytesField(metadata, func(number protowire.Number, value []byte) {
			if number == metaResourceVersion {
				own = value
			}
		})
		if len(own) > 0 {
			return metadata
		}
		out := protowire.AppendTag(append([]byte(nil), metadata...), metaResourceVersion, protowire.BytesType)
		return protowire.AppendString(out, version)
	})
}
