package router

import (
	"bytes"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/objbytes"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// identity is the part of an object that routing depends on.
type identity struct {
	name, generateName, slot string
}

var errMalformed = errors.New("the body is not an object")

// readIdentity reads the name of an object exactly as API servers do: otherwise the object would be created in the wrong cell.
// It refuses ambiguous bodies. A body that cannot be decoded has no name; the API server refuses it. The error can be written as
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

func protoIdentity(body []byte) (identity, error) {
	if !bytes.HasPrefix(body, []byte(objbytes.ProtobufPrefix)) {
		return identity{}, nil
	}
	envelope, err := objbytes.OpenEnvelope(body)
	if err != nil {
		return identity{}, apierrors.NewBadRequest(errMalformed.Error())
	}
	var metadata objbytes.Metadata
	if err := metadata.MergeProtobuf(envelope.Raw.Of(body)); err != nil {
		return identity{}, apierrors.NewBadRequest(errMalformed.Error())
	}
	return identity{string(metadata.Name), string(metadata.GenerateName), metadata.Labels.Get(slots.HintLabel)}, nil
}

// setName returns the body with the name set.
func setName(mediaType string, body []byte, name string) ([]byte, error) {
	switch mediaType {
	case splice.ProtobufContentType:
		return objbytes.AppendMetadataField(body, objbytes.MetaName, name)
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
