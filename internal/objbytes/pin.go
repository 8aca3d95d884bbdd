package objbytes

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

var (
	// ErrHasVersion reports a request that names a resourceVersion itself, so that it must not be pinned to another.
	ErrHasVersion = errors.New("the request names a resourceVersion itself")
	// ErrMediaType reports a body in an encoding that cannot be pinned.
	ErrMediaType = errors.New("the body has an unsupported media type")
)

// PatchCheck is the JSON patch operation that compares the resourceVersion.
type PatchCheck string

const (
	// TestVersion tests the resourceVersion first. Later operations cannot undo that. API servers answer a mismatch with 422.
	TestVersion PatchCheck = "test"
	// SetVersion sets the resourceVersion first. API servers answer a mismatch with 409, as they do for all other pinned requests. A
	// later operation may replace the version.
	SetVersion PatchCheck = "add"
)

// Pin restricts a request to one version of an object: the API server refuses the request if the object has changed since.
type Pin struct {
	// UID and ResourceVersion are those of the object. The UID is used for deletions only.
	UID, ResourceVersion string
	// PatchCheck is used for JSON patches.
	PatchCheck PatchCheck
}

// Write pins the body of an update or patch: an object, or a patch of any type. A body in YAML becomes JSON, which is YAML, too.
func (p Pin) Write(mediaType string, body []byte) ([]byte, error) {
	switch mediaType {
	case string(types.JSONPatchType):
		return p.jsonPatch(body)
	case ProtobufMediaType:
		return p.protobuf(body)
	}
	content, err := asJSON(mediaType, body)
	if err != nil {
		return nil, err
	}
	var given struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := decode(content, &given); err != nil {
		return nil, err
	}
	if len(given.Metadata) == 0 || isNull(given.Metadata) {
		given.Metadata = json.RawMessage("{}")
	}
	var metadata struct {
		ResourceVersion *string `json:"resourceVersion"`
	}
	if err := decode(given.Metadata, &metadata); err != nil {
		return nil, err
	}
	if ptr.Deref(metadata.ResourceVersion, "") != "" {
		return nil, ErrHasVersion
	}
	pinned, err := setMember(given.Metadata, "resourceVersion", p.ResourceVersion)
	if err != nil {
		return nil, err
	}
	return setMember(content, "metadata", json.RawMessage(pinned))
}

// Delete pins the options of a deletion, which must not be empty.
func (p Pin) Delete(mediaType string, options []byte) ([]byte, error) {
	if mediaType == ProtobufMediaType {
		return p.protobufOptions(options)
	}
	content, err := asJSON(mediaType, options)
	if err != nil {
		return nil, err
	}
	var given struct {
		Preconditions *metav1.Preconditions `json:"preconditions"`
	}
	if err := decode(content, &given); err != nil {
		return nil, err
	}
	preconditions, err := p.Preconditions(given.Preconditions)
	if err != nil {
		return nil, err
	}
	return setMember(content, "preconditions", preconditions)
}

// Preconditions returns the preconditions of a deletion with those of the Pin added.
func (p Pin) Preconditions(given *metav1.Preconditions) (*metav1.Preconditions, error) {
	own := &metav1.Preconditions{UID: ptr.To(types.UID(p.UID)), ResourceVersion: &p.ResourceVersion}
	switch {
	case given == nil:
	case ptr.Deref(given.ResourceVersion, "") != "":
		return nil, ErrHasVersion
	case given.UID != nil:
		own.UID = given.UID
	}
	return own, nil
}

func (p Pin) protobufOptions(body []byte) ([]byte, error) {
	envelope, err := OpenEnvelope(body)
	if err != nil {
		return nil, err
	}
	var options metav1.DeleteOptions
	if err := options.Unmarshal(envelope.Raw.Of(body)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if options.Preconditions, err = p.Preconditions(options.Preconditions); err != nil {
		return nil, err
	}
	raw, err := options.Marshal()
	if err != nil {
		return nil, err
	}
	fields, err := cutMessage(body[len(ProtobufPrefix):])
	if err != nil {
		return nil, err
	}
	return join([]byte(ProtobufPrefix), replaceLast(fields, UnknownRaw, raw)), nil
}

func (p Pin) protobuf(body []byte) ([]byte, error) {
	envelope, err := OpenEnvelope(body)
	if err != nil {
		return nil, err
	}
	var metadata Metadata
	if err := metadata.MergeProtobuf(envelope.Raw.Of(body)); err != nil {
		return nil, err
	}
	if len(metadata.ResourceVersion) > 0 {
		return nil, ErrHasVersion
	}
	return AppendMetadataField(body, MetaVersion, p.ResourceVersion)
}

func (p Pin) jsonPatch(body []byte) ([]byte, error) {
	var operations []json.RawMessage
	if err := decode(body, &operations); err != nil {
		return nil, err
	}
	check, err := json.Marshal(map[string]string{"op": string(p.PatchCheck), "path": "/metadata/resourceVersion", "value": p.ResourceVersion})
	if err != nil {
		return nil, err
	}
	return json.Marshal(append([]json.RawMessage{check}, operations...))
}

// asJSON returns a body as JSON.
func asJSON(mediaType string, body []byte) ([]byte, error) {
	switch mediaType {
	case "application/yaml", string(types.ApplyYAMLPatchType):
		converted, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return converted, nil
	case runtime.ContentTypeJSON, string(types.MergePatchType), string(types.StrategicMergePatchType):
		return body, nil
	default:
		return nil, fmt.Errorf("%w: %.60q", ErrMediaType, mediaType)
	}
}

// decode reads JSON as API servers do, for whom member names are case-sensitive.
func decode(data []byte, into any) error {
	if err := utiljson.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// setMember sets a member of a JSON object and keeps the others as they are.
func setMember(object []byte, name string, value any) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := decode(object, &members); err != nil {
		return nil, err
	}
	if members == nil {
		return nil, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	content, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	members[name] = content
	return json.Marshal(members)
}
