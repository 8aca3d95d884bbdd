package objbytes

import (
	"encoding/json"
	"errors"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

var (
	// ErrHasVersion reports a request that names another resourceVersion itself, so that it must not be pinned.
	ErrHasVersion = errors.New("the request names another resourceVersion itself")
	// ErrMediaType reports a body in an encoding that cannot be pinned.
	ErrMediaType = errors.New("the body has an unsupported media type")
)

// PatchCheck is the JSON patch operation that compares the resourceVersion.
type PatchCheck string

const (
	// TestVersion tests the resourceVersion first. Later operations cannot undo that. API servers answer a mismatch with 422.
	TestVersion PatchCheck = "test"
	// SetVersion sets the resourceVersion first, and tests at last that no operation has replaced it. API servers answer a mismatch with 409, as
	// they do for all other pinned requests, and the replacement with 422.
	SetVersion PatchCheck = "add"
)

// Pin restricts a request to one version of an object: the API server refuses the request if the object has changed since.
type Pin struct {
	// UID and ResourceVersion are those of the object. The UID is used for deletions only.
	UID, ResourceVersion string
	// PatchCheck is used for JSON patches.
	PatchCheck PatchCheck
	// Replace replaces the version that the request names.
	Replace bool
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
	if version := ptr.Deref(metadata.ResourceVersion, ""); version != "" && version != p.ResourceVersion && !p.Replace {
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

// Evict pins an Eviction by the options of its deletion. A body in YAML becomes JSON.
func (p Pin) Evict(mediaType string, eviction []byte) ([]byte, error) {
	if mediaType == ProtobufMediaType {
		return p.protobufEviction(eviction)
	}
	content, err := asJSON(mediaType, eviction)
	if err != nil {
		return nil, err
	}
	var given struct {
		DeleteOptions json.RawMessage `json:"deleteOptions"`
	}
	if err := decode(content, &given); err != nil {
		return nil, err
	}
	if len(given.DeleteOptions) == 0 || isNull(given.DeleteOptions) {
		given.DeleteOptions = json.RawMessage("{}")
	}
	options, err := p.Delete(runtime.ContentTypeJSON, given.DeleteOptions)
	if err != nil {
		return nil, err
	}
	return setMember(content, "deleteOptions", json.RawMessage(options))
}

// Preconditions returns the preconditions of a deletion with those of the Pin added. A UID that is given stays.
func (p Pin) Preconditions(given *metav1.Preconditions) (*metav1.Preconditions, error) {
	own := &metav1.Preconditions{ResourceVersion: &p.ResourceVersion}
	if p.UID != "" {
		own.UID = ptr.To(types.UID(p.UID))
	}
	if given == nil {
		return own, nil
	}
	if version := ptr.Deref(given.ResourceVersion, ""); version != "" && version != p.ResourceVersion && !p.Replace {
		return nil, ErrHasVersion
	}
	if given.UID != nil {
		own.UID = given.UID
	}
	return own, nil
}

// DeleteOptions decodes the options of a deletion, which must not be empty.
func DeleteOptions(mediaType string, body []byte) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if mediaType == ProtobufMediaType {
		envelope, err := OpenEnvelope(body)
		if err != nil {
			return nil, err
		}
		if err := options.Unmarshal(envelope.Raw.Of(body)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return options, nil
	}
	content, err := asJSON(mediaType, body)
	if err != nil {
		return nil, err
	}
	return options, decode(content, options)
}

func (p Pin) protobufOptions(body []byte) ([]byte, error) {
	options, err := DeleteOptions(ProtobufMediaType, body)
	if err != nil {
		return nil, err
	}
	if options.Preconditions, err = p.Preconditions(options.Preconditions); err != nil {
		return nil, err
	}
	raw, err := options.Marshal()
	if err != nil {
		return nil, err
	}
	return withRaw(body, raw)
}

func (p Pin) protobufEviction(body []byte) ([]byte, error) {
	envelope, err := OpenEnvelope(body)
	if err != nil {
		return nil, err
	}
	var eviction policyv1.Eviction // that of v1beta1 has the same fields
	if err := eviction.Unmarshal(envelope.Raw.Of(body)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if eviction.DeleteOptions == nil {
		eviction.DeleteOptions = &metav1.DeleteOptions{}
	}
	if eviction.DeleteOptions.Preconditions, err = p.Preconditions(eviction.DeleteOptions.Preconditions); err != nil {
		return nil, err
	}
	raw, err := eviction.Marshal()
	if err != nil {
		return nil, err
	}
	return withRaw(body, raw)
}

// withRaw returns an object in protobuf with other content.
func withRaw(body, raw []byte) ([]byte, error) {
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
	if version := metadata.ResourceVersion; len(version) > 0 && string(version) != p.ResourceVersion && !p.Replace {
		return nil, ErrHasVersion
	}
	return AppendMetadataField(body, MetaVersion, p.ResourceVersion)
}

func (p Pin) jsonPatch(body []byte) ([]byte, error) {
	var operations []json.RawMessage
	if err := decode(body, &operations); err != nil {
		return nil, err
	}
	check := func(operation PatchCheck) any {
		return map[string]string{"op": string(operation), "path": "/metadata/resourceVersion", "value": p.ResourceVersion}
	}
	checked := []any{check(p.PatchCheck)}
	for _, operation := range operations {
		checked = append(checked, operation)
	}
	if p.PatchCheck == SetVersion {
		checked = append(checked, check(TestVersion))
	}
	return json.Marshal(checked)
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
