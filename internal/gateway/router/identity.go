package router

import (
	"bytes"
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// identity is the part of an object that routing depends on.
type identity struct {
	name, generateName, slot string
}

// protobufMagic starts every Kubernetes object in protobuf.
var protobufMagic = []byte("k8s\x00")

var errMalformed = errors.New("the body is not an object")

// readIdentity reads the name of an object exactly as API servers do: otherwise the object would be created in a cell where nobody looks
// for it. It refuses ambiguous bodies. A body that cannot be decoded has no name; the API server refuses it. The error can be written as
// it is.
func readIdentity(mediaType string, body []byte) (identity, error) {
	switch mediaType {
	case splice.ProtobufContentType:
		return protoIdentity(body)
	case "application/yaml":
		converted, err := yaml.YAMLToJSON(body)
		if err != nil {
			return identity{}, nil //nolint:nilerr // the API server refuses what it cannot read
		}
		return jsonIdentity(converted)
	case "application/cbor", "application/cbor-seq":
		return identity{}, unsupportedMediaType(splice.ErrUnsupported.Error())
	default:
		return jsonIdentity(body)
	}
}

func jsonIdentity(body []byte) (identity, error) {
	var object struct {
		Metadata struct {
			Name         string            `json:"name"`
			GenerateName string            `json:"generateName"`
			Labels       map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	// API servers differ on duplicate fields: some take the last one, some merge them.
	twice, err := kjson.UnmarshalStrict(body, &object, kjson.DisallowDuplicateFields)
	switch {
	case err != nil:
		return identity{}, nil //nolint:nilerr // the API server refuses what it cannot read
	case len(twice) > 0:
		return identity{}, apierrors.NewBadRequest("the body is ambiguous: " + errors.Join(twice...).Error())
	}
	return identity{object.Metadata.Name, object.Metadata.GenerateName, object.Metadata.Labels[slots.HintLabel]}, nil
}

// The protobuf field numbers on the path to the name.
const (
	unknownRaw       = 2
	objectMetadata   = 1
	metaName         = 1
	metaGenerateName = 2
	metaLabels       = 11
)

func protoIdentity(body []byte) (identity, error) {
	var found identity
	if !bytes.HasPrefix(body, protobufMagic) {
		return found, nil
	}
	inside := true
	sound := eachBytesField(body[len(protobufMagic):], func(number protowire.Number, raw []byte) {
		if number != unknownRaw {
			return
		}
		found = identity{} // the last of several objects counts
		inside = eachBytesField(raw, func(number protowire.Number, metadata []byte) {
			if number == objectMetadata {
				inside = eachBytesField(metadata, found.take) && inside
			}
		}) && inside
	})
	if !sound || !inside {
		return identity{}, apierrors.NewBadRequest(errMalformed.Error())
	}
	return found, nil
}

// take reads a field of an object's metadata.
func (i *identity) take(number protowire.Number, value []byte) {
	switch number {
	case metaName:
		i.name = string(value)
	case metaGenerateName:
		i.generateName = string(value)
	case metaLabels:
		if key, label := mapEntry(value); key == slots.HintLabel {
			i.slot = label
		}
	}
}

func mapEntry(entry []byte) (key, value string) {
	eachBytesField(entry, func(number protowire.Number, content []byte) {
		switch number {
		case 1:
			key = string(content)
		case 2:
			value = string(content)
		}
	})
	return key, value
}

// eachBytesField calls visit for every length-delimited field of a message. It stops at a malformed field and returns false.
func eachBytesField(message []byte, visit func(protowire.Number, []byte)) bool {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return false
			}
			message = message[n:]
			continue
		}
		content, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return false
		}
		visit(number, content)
		message = message[n:]
	}
	return true
}

// setName returns the body with the name set.
func setName(mediaType string, body []byte, name string) ([]byte, error) {
	switch mediaType {
	case splice.ProtobufContentType:
		return setProtoName(body, name), nil
	case "application/yaml":
		converted, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return setJSONName(converted, name) // JSON is YAML
	default:
		return setJSONName(body, name)
	}
}

// setJSONName decodes only the objects around the name; the rest stays as it is, byte for byte.
func setJSONName(body []byte, name string) ([]byte, error) {
	var object, metadata map[string]json.RawMessage
	err := json.Unmarshal(body, &object)
	if err == nil {
		err = json.Unmarshal(object["metadata"], &metadata)
	}
	if err != nil || metadata == nil {
		return nil, apierrors.NewBadRequest(errMalformed.Error())
	}
	if metadata["name"], err = json.Marshal(name); err != nil {
		return nil, err
	}
	if object["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// setProtoName appends a second name field; the last one counts.
func setProtoName(body []byte, name string) []byte {
	out := bytes.Clone(protobufMagic)
	return appendRewritten(out, body[len(protobufMagic):], []protowire.Number{unknownRaw, objectMetadata}, func(metadata []byte) []byte {
		out := append([]byte(nil), metadata...)
		out = protowire.AppendTag(out, metaName, protowire.BytesType)
		return protowire.AppendString(out, name)
	})
}

// appendRewritten appends a message with the field at the end of a path replaced.
func appendRewritten(dst, message []byte, path []protowire.Number, change func([]byte) []byte) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return append(dst, message...)
		}
		field := message[:n]
		message = message[n:]
		if number != path[0] || kind != protowire.BytesType {
			dst = append(dst, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		content, _ := protowire.ConsumeBytes(field[tag:])
		if len(path) > 1 {
			content = appendRewritten(nil, content, path[1:], change)
		} else {
			content = change(content)
		}
		dst = protowire.AppendTag(dst, number, protowire.BytesType)
		dst = protowire.AppendBytes(dst, content)
	}
	return dst
}
