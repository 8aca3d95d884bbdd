package splice

import (
	"errors"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Object is the identity of an object, with access to its labels and annotations.
type Object struct {
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
	// UID distinguishes objects of the same name.
	UID string
	// ResourceVersion is that of the API server.
	ResourceVersion string

	labels, annotations objbytes.Map
}

// Key returns the object's key, by which lists are sorted: `namespace/name`, or `name` of a cluster-scoped object.
func (o *Object) Key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Label returns the value of a label, or "".
func (o *Object) Label(name string) string { return o.labels.Get(name) }

// Annotation returns the value of an annotation, or "".
func (o *Object) Annotation(name string) string { return o.annotations.Get(name) }

func objectOf(m *objbytes.Metadata) Object {
	return Object{
		Namespace: string(m.Namespace), Name: string(m.Name), UID: string(m.UID), ResourceVersion: string(m.ResourceVersion),
		labels: m.Labels, annotations: m.Annotations,
	}
}

// appendJSONKey appends the key of a JSON object to dst.
func appendJSONKey(dst, object []byte) ([]byte, error) {
	metadata, err := objbytes.FindMember(object, span{Start: 0, End: len(object)}, "metadata")
	if err != nil {
		return dst, err
	}
	if !objbytes.IsObject(metadata.Of(object)) {
		return dst, objbytes.ErrNoMetadata
	}
	var namespace, name []byte
	_, err = objbytes.EachMember(object[:metadata.End], metadata.Start, func(m objbytes.Member) (err error) {
		switch string(m.Key) {
		case "name":
			name, err = objbytes.String(m.Value.Of(object))
		case "namespace":
			namespace, err = objbytes.String(m.Value.Of(object))
		}
		if err == nil && name != nil && namespace != nil {
			return objbytes.ErrStop
		}
		return err
	})
	if err != nil {
		return dst, err
	}
	return appendKey(dst, namespace, name)
}

// eachMember calls visit for the members of the object that begins at i, until visit returns ErrStop.
func eachMember(b []byte, i int, visit func(key []byte, value span) error) error {
	_, err := objbytes.EachMember(b, i, func(m objbytes.Member) error { return visit(m.Key, m.Value) })
	return err
}

func appendKey(dst, namespace, name []byte) ([]byte, error) {
	if len(name) == 0 {
		return dst, errors.New("the object has no name")
	}
	if len(namespace) > 0 {
		dst = append(append(dst, namespace...), '/')
	}
	return append(dst, name...), nil
}

// parseJSONMetadata reads an object's metadata. It also returns the range of the quoted resourceVersion, which is empty if there is none.
func parseJSONMetadata(b []byte, metadata span) (Object, span, error) {
	var m objbytes.Metadata
	err := m.ReadJSON(b, metadata)
	return objectOf(&m), m.VersionAt, err
}
