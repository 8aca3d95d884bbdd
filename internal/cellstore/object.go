package cellstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Object identifies a stored object.
type Object struct {
	// GroupVersionKind has the version in which the object is stored.
	schema.GroupVersionKind
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
	// UID distinguishes objects of the same name.
	UID string
	// Deleting is set if the object waits for its finalizers.
	Deleting bool
	// Labels and Annotations are those stored.
	Labels, Annotations map[string]string
	// TemplateName is the name of a binding's template.
	TemplateName string
}

// String returns the kind and name of the object, for messages.
func (o *Object) String() string {
	if o.Namespace == "" {
		return fmt.Sprintf("%s %s", o.Kind, o.Name)
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// ErrUnknownEncoding means that a value is neither JSON nor protobuf as API servers store them.
var ErrUnknownEncoding = errors.New("the value is neither JSON nor Kubernetes protobuf")

// isProtobuf returns the encoding of a value.
func isProtobuf(value []byte) (bool, error) {
	switch {
	case bytes.HasPrefix(value, []byte(objbytes.ProtobufPrefix)):
		return true, nil
	case objbytes.IsObject(value):
		return false, nil
	default:
		return false, ErrUnknownEncoding
	}
}

// Parse reads the identity of a stored object.
func Parse(value []byte) (*Object, error) {
	protobuf, err := isProtobuf(value)
	if err != nil {
		return nil, err
	}
	parse := parseJSON
	if protobuf {
		parse = parseProtobuf
	}
	object, err := parse(value)
	if err != nil {
		return nil, fmt.Errorf("reading a stored object: %w", err)
	}
	return object, nil
}

func parseProtobuf(value []byte) (*Object, error) {
	envelope, err := objbytes.OpenEnvelope(value)
	if err != nil {
		return nil, err
	}
	field, err := objbytes.ProtobufMetadata(envelope.Raw.Of(value))
	if err != nil {
		return nil, err
	}
	var metadata objbytes.Metadata
	if err := metadata.ReadProtobuf(field.Value); err != nil {
		return nil, err
	}
	apiVersion, err := objbytes.LastBytes(envelope.TypeMeta.Of(value), objbytes.TypeMetaAPIVersion)
	if err != nil {
		return nil, err
	}
	kind, err := objbytes.LastBytes(envelope.TypeMeta.Of(value), objbytes.TypeMetaKind)
	if err != nil {
		return nil, err
	}
	return newObject(string(apiVersion), string(kind), &metadata)
}

func parseJSON(value []byte) (*Object, error) {
	if !json.Valid(value) {
		return nil, objbytes.ErrJSON
	}
	at, err := objbytes.JSONMetadata(value)
	if err != nil {
		return nil, err
	}
	var metadata objbytes.Metadata
	if err := metadata.ReadJSON(value, at); err != nil {
		return nil, err
	}
	whole := objbytes.Span{End: len(value)}
	apiVersion, err := text(value, whole, "apiVersion")
	if err != nil {
		return nil, err
	}
	kind, err := text(value, whole, "kind")
	if err != nil {
		return nil, err
	}
	object, err := newObject(apiVersion, kind, &metadata)
	if err == nil && object.GroupKind() == (schema.GroupKind{Group: bindingGroup, Kind: "ResourceBinding"}) {
		object.TemplateName, err = templateName(value, object.Name)
	}
	return object, err
}

func newObject(apiVersion, kind string, metadata *objbytes.Metadata) (object *Object, err error) {
	object = &Object{
		GroupVersionKind: schema.FromAPIVersionAndKind(apiVersion, kind),
		Namespace:        string(metadata.Namespace), Name: string(metadata.Name), UID: string(metadata.UID), Deleting: metadata.Deleting,
	}
	if object.Labels, err = metadata.Labels.Strings(); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	if object.Annotations, err = metadata.Annotations.Strings(); err != nil {
		return nil, fmt.Errorf("annotations: %w", err)
	}
	return object, nil
}

// text returns a member that is a string, "" if there is none.
func text(b []byte, object objbytes.Span, name string) (string, error) {
	found, err := objbytes.FindMember(b, object, name)
	if err != nil || found == (objbytes.Span{}) {
		return "", err
	}
	content, err := objbytes.String(found.Of(b))
	return string(content), err
}

const bindingGroup = "work.karmada.io"

// templateName returns the name of a binding's template. A binding is named `<name>-<kind>` after its template. The kind that the
// binding refers to only tells where to cut.
func templateName(value []byte, binding string) (string, error) {
	at := objbytes.Span{End: len(value)}
	for _, name := range []string{"spec", "resource"} {
		found, err := objbytes.FindMember(value, at, name)
		if err != nil {
			return "", err
		}
		at = found
		if !objbytes.IsObject(at.Of(value)) {
			break
		}
	}
	var kind string
	if objbytes.IsObject(at.Of(value)) {
		var err error
		if kind, err = text(value, at, "kind"); err != nil {
			return "", err
		}
	}
	if name, cut := strings.CutSuffix(binding, "-"+strings.ToLower(kind)); cut && name != "" {
		return name, nil
	}
	if dash := strings.LastIndexByte(binding, '-'); dash > 0 {
		return binding[:dash], nil
	}
	return binding, nil
}

// Mark is what the mover writes on an object.
type Mark struct {
	// Labels and Annotations are set. Those with an empty value are removed.
	Labels, Annotations map[string]string
}

// WithMark returns the value with labels and annotations set or removed, and everything else as it was: exactly what the API server
// would store for such an object.
func WithMark(value []byte, mark Mark) ([]byte, error) {
	marked, err := edit(value, objbytes.Edit{Labels: mark.Labels, Annotations: mark.Annotations})
	if err != nil {
		return nil, fmt.Errorf("marking a stored object: %w", err)
	}
	return marked, nil
}

// WithoutVersion returns an object that an API server has served without its resourceVersion, as it is stored. The encoding stays.
func WithoutVersion(served []byte) ([]byte, error) {
	value, err := edit(served, objbytes.Edit{ClearVersion: true})
	if err != nil {
		return nil, fmt.Errorf("reading a served object: %w", err)
	}
	return value, nil
}

func edit(value []byte, edit objbytes.Edit) ([]byte, error) {
	if _, err := isProtobuf(value); err != nil {
		return nil, err
	}
	return edit.Apply(value)
}
