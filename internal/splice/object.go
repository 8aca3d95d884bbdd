package splice

import (
	"errors"
	"fmt"
)

// Object is the identity of an object, with those of its labels and annotations that are asked for.
type Object struct {
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
	// UID tells objects of one name apart.
	UID string
	// ResourceVersion is the version the API server gave it.
	ResourceVersion string

	labels, annotations stringMap
}

// Key returns the object's key in the order of which lists are: `namespace/name`, or `name` of a cluster-scoped object.
func (o *Object) Key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Label returns the value of a label, or "".
func (o *Object) Label(name string) string { return o.labels.get(name) }

// Annotation returns the value of an annotation, or "".
func (o *Object) Annotation(name string) string { return o.annotations.get(name) }

// stringMap is an encoded map of strings: a JSON object, or the entries of a protobuf map.
type stringMap struct {
	json  []byte
	proto [][]byte
}

func (m stringMap) get(name string) string {
	for _, entry := range m.proto {
		if key, value := protoEntry(entry); string(key) == name {
			return string(value)
		}
	}
	if !isObject(m.json) {
		return ""
	}
	var found string
	// Errors mean that the label cannot be read, which is as if it were not there.
	_ = eachMember(m.json, 0, func(key []byte, value span) error {
		if string(key) != name {
			return nil
		}
		s, err := stringOf(value.of(m.json))
		found = string(s)
		return errors.Join(err, errStop)
	})
	return found
}

var errNoMetadata = errors.New("an object has no metadata")

// jsonMember returns the range of an object's member; the empty range if there is none.
func jsonMember(b []byte, object span, name string) (span, error) {
	var found span
	err := eachMember(b[:object.end], object.start, func(key []byte, value span) error {
		if string(key) != name {
			return nil
		}
		found = value
		return errStop
	})
	return found, err
}

// appendJSONKey appends the key of a JSON object to dst.
func appendJSONKey(dst, object []byte) ([]byte, error) {
	metadata, err := jsonMember(object, span{0, len(object)}, "metadata")
	if err != nil {
		return dst, err
	}
	if !isObject(metadata.of(object)) {
		return dst, errNoMetadata
	}
	var namespace, name []byte
	err = eachMember(object[:metadata.end], metadata.start, func(key []byte, value span) (err error) {
		switch string(key) {
		case "name":
			name, err = stringOf(value.of(object))
		case "namespace":
			namespace, err = stringOf(value.of(object))
		}
		if err == nil && name != nil && namespace != nil {
			return errStop
		}
		return err
	})
	if err != nil {
		return dst, err
	}
	return appendKey(dst, namespace, name)
}

func appendKey(dst, namespace, name []byte) ([]byte, error) {
	if len(name) == 0 {
		return dst, errors.New("an object has no name")
	}
	if len(namespace) > 0 {
		dst = append(append(dst, namespace...), '/')
	}
	return append(dst, name...), nil
}

// parseJSONMetadata reads an object's metadata. It also returns the range of the quoted resourceVersion, which is empty if there is none.
func parseJSONMetadata(b []byte, metadata span) (object Object, version span, err error) {
	if !isObject(metadata.of(b)) {
		return object, version, errNoMetadata
	}
	err = eachMember(b[:metadata.end], metadata.start, func(key []byte, value span) error {
		var target *string
		switch string(key) {
		case "name":
			target = &object.Name
		case "namespace":
			target = &object.Namespace
		case "uid":
			target = &object.UID
		case "resourceVersion":
			target, version = &object.ResourceVersion, value
		case "labels":
			object.labels.json = value.of(b)
			return nil
		case "annotations":
			object.annotations.json = value.of(b)
			return nil
		default:
			return nil
		}
		s, err := stringOf(value.of(b))
		if err != nil {
			return fmt.Errorf("metadata.%s: %w", key, err)
		}
		*target = string(s)
		return nil
	})
	return object, version, err
}
