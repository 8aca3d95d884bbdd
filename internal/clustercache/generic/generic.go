// Package generic encodes objects of any kind for a Store, which reads metadata in protobuf.
//
// Custom resources have no protobuf encoding. Here they get one: field 1 is their metadata as in every Kubernetes object, and field 2 the
// rest as JSON, sorted by name, so that objects that are alike are encoded alike and compress well.
package generic

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// contentField has what is not metadata.
const contentField = 2

var errNoObject = errors.New("it is no object with metadata")

// Encode encodes an object that is given as JSON.
func Encode(object []byte) ([]byte, error) {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(object, &parts); err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	if parts["metadata"] == nil {
		return nil, fmt.Errorf("reading an object: %w", errNoObject)
	}
	var meta metav1.ObjectMeta
	if err := json.Unmarshal(parts["metadata"], &meta); err != nil {
		return nil, fmt.Errorf("reading metadata: %w", err)
	}
	delete(parts, "metadata")
	delete(parts, "apiVersion")
	delete(parts, "kind")
	content, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("encoding an object: %w", err)
	}
	return Join(&meta, content)
}

// Join encodes an object that is given as its metadata, and the rest as JSON.
func Join(meta *metav1.ObjectMeta, content []byte) ([]byte, error) {
	encoded, err := meta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding metadata: %w", err)
	}
	return objbytes.AppendBytes(objbytes.AppendBytes(nil, objbytes.ObjectMetadata, encoded), contentField, content), nil
}

// Split returns what Join was given, and a Store may have edited since.
func Split(raw []byte) (*metav1.ObjectMeta, []byte, error) {
	field, err := objbytes.ProtobufMetadata(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding metadata: %w", err)
	}
	meta := &metav1.ObjectMeta{}
	if err := meta.Unmarshal(field.Value); err != nil {
		return nil, nil, fmt.Errorf("decoding metadata: %w", err)
	}
	content, err := objbytes.LastBytes(raw, contentField)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding an object: %w", err)
	}
	return meta, content, nil
}

// Decode decodes what Encode returned, and a Store may have edited since.
func Decode(raw []byte, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	meta, content, err := Split(raw)
	if err != nil {
		return nil, err
	}
	described, err := runtime.DefaultUnstructuredConverter.ToUnstructured(meta)
	if err != nil {
		return nil, fmt.Errorf("decoding metadata: %w", err)
	}
	object := map[string]any{}
	if len(content) > 0 {
		if err := utiljson.Unmarshal(content, &object); err != nil {
			return nil, fmt.Errorf("decoding a %s: %w", kind.Kind, err)
		}
	}
	object["metadata"] = described
	decoded := &unstructured.Unstructured{Object: object}
	decoded.SetGroupVersionKind(kind)
	return decoded, nil
}

// Needed reports whether objects of a kind have no protobuf encoding of their own, as far as we know.
func Needed(kind schema.GroupVersionKind) bool {
	object, err := clientscheme.Scheme.New(kind)
	if err != nil {
		return true
	}
	_, known := object.(interface{ Unmarshal(data []byte) error })
	return !known
}
