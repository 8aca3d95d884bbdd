package cellstore

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is what identifies a stored object.
type Object struct {
	// GroupVersionKind is the version it is stored in.
	schema.GroupVersionKind
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
	// UID tells objects of one name apart.
	UID string
	// Deleting tells that the object waits for its finalizers.
	Deleting bool
	// Labels and Annotations are as they are stored.
	Labels, Annotations map[string]string
	// TemplateName is the name of the template that a binding is made for.
	TemplateName string
}

// String names the object for people.
func (o *Object) String() string {
	if o.Namespace == "" {
		return fmt.Sprintf("%s %s", o.Kind, o.Name)
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// ErrEncrypted means that the API server encrypts what it stores, so that it cannot be read without its keys.
var ErrEncrypted = errors.New("the API server encrypts what it stores, which only works with objects that stay where they are; turn encryption at rest off for the cells' API servers and rewrite the stored objects")

// ErrUnknownEncoding means that a value is neither JSON nor protobuf as API servers store them.
var ErrUnknownEncoding = errors.New("the value is neither JSON nor protobuf of Kubernetes")

var (
	encryptedPrefix = []byte("k8s:enc:")
	protoPrefix     = []byte("k8s\x00")
)

// encoding of a value.
type encoding int

const (
	encodingJSON encoding = iota
	encodingProto
)

func encodingOf(value []byte) (encoding, error) {
	switch {
	case bytes.HasPrefix(value, protoPrefix):
		return encodingProto, nil
	case bytes.HasPrefix(value, encryptedPrefix):
		return 0, ErrEncrypted
	case len(value) > 0 && value[0] == '{':
		return encodingJSON, nil
	default:
		return 0, ErrUnknownEncoding
	}
}

// Parse reads what identifies a stored object.
func Parse(value []byte) (*Object, error) {
	encoding, err := encodingOf(value)
	if err != nil {
		return nil, err
	}
	var object *Object
	if encoding == encodingProto {
		object, err = parseProto(value)
	} else {
		object, err = parseJSON(value)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a stored object: %w", err)
	}
	return object, nil
}

// Mark is what the mover writes on an object.
type Mark struct {
	// Labels and Annotations are set; those with an empty value are removed.
	Labels, Annotations map[string]string
}

// WithMark returns the value with labels and annotations set or removed, and everything else as it was: exactly what the API server
// would store for such an object.
func WithMark(value []byte, mark Mark) ([]byte, error) {
	encoding, err := encodingOf(value)
	if err != nil {
		return nil, err
	}
	var marked []byte
	if encoding == encodingProto {
		marked, err = markProto(value, mark)
	} else {
		marked, err = markJSON(value, mark)
	}
	if err != nil {
		return nil, fmt.Errorf("marking a stored object: %w", err)
	}
	return marked, nil
}
