package splice

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// Stamp replaces the resourceVersions of an answer with one object: the object, a Table of it, or a subresource such as a Scale. It is
// given each resourceVersion in the answer. What has none, such as a Status, stays as it is, and so does a body of another media type.
func Stamp(mediaType string, body []byte, version func(revision string) string) ([]byte, error) {
	switch mediaType {
	case "application/json":
		return stampJSON(body, version)
	case "application/yaml":
		converted, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, err
		}
		stamped, err := stampJSON(converted, version)
		if err != nil {
			return nil, err
		}
		return yaml.JSONToYAML(stamped)
	case ProtobufContentType:
		return stampProto(body, version)
	default:
		return body, nil
	}
}

// ReadMetadata reads the metadata of an answer with one object. That of a Table has no name.
func ReadMetadata(mediaType string, body []byte) (m objbytes.Metadata, err error) {
	switch mediaType {
	case "application/yaml":
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return m, err
		}
		fallthrough
	case "application/json":
		at, err := objbytes.JSONMetadata(body)
		if err != nil {
			return m, err
		}
		return m, m.ReadJSON(body, at)
	case ProtobufContentType:
		envelope, err := objbytes.OpenEnvelope(body)
		if err != nil {
			return m, err
		}
		metadata, err := objbytes.ProtobufMetadata(envelope.Raw.Of(body))
		if err != nil {
			return m, err
		}
		return m, m.ReadProtobuf(metadata.Value)
	default:
		return m, objbytes.ErrNoMetadata
	}
}

func stampJSON(body []byte, version func(string) string) ([]byte, error) {
	places, err := jsonVersions(body)
	if err != nil || len(places) == 0 {
		return body, err
	}
	out := make([]byte, 0, len(body)+len(places)*maxVersion)
	at := 0
	for _, place := range places {
		revision, err := objbytes.String(place.Of(body))
		if err != nil {
			return nil, err
		}
		if len(revision) == 0 {
			continue
		}
		out = append(out, body[at:place.Start]...)
		out = objbytes.AppendQuoted(out, version(string(revision)))
		at = place.End
	}
	return append(out, body[at:]...), nil
}

// maxVersion is the length of the longest version of an object.
const maxVersion = 19

// jsonVersions returns the places of the resourceVersions in an object, or in a Table and the objects of its rows.
func jsonVersions(body []byte) (places []span, err error) {
	note := func(metadata span) error {
		if !objbytes.IsObject(metadata.Of(body)) {
			return nil
		}
		at, err := objbytes.FindMember(body, metadata, "resourceVersion")
		if err == nil && at != (span{}) && objbytes.IsString(at.Of(body)) {
			places = append(places, at)
		}
		return err
	}
	kind, metadata, rows := "", span{}, span{}
	err = eachMember(body, objbytes.SkipSpace(body, 0), func(key []byte, value span) error {
		switch string(key) {
		case "kind":
			s, err := objbytes.String(value.Of(body))
			kind = string(s)
			if err != nil {
				return err
			}
		case "metadata":
			metadata = value
		case "rows":
			rows = value
		}
		if metadata != (span{}) && kind != "" && kind != "Table" {
			return objbytes.ErrStop // what follows is the bulk of the object
		}
		return nil
	})
	if err == nil {
		err = note(metadata)
	}
	if err != nil || kind != "Table" || rows == (span{}) || len(rows.Of(body)) == 0 || rows.Of(body)[0] != '[' {
		return places, err
	}
	err = objbytes.EachElement(body[:rows.End], rows.Start, func(row span) error {
		object, err := objbytes.FindMember(body, row, "object")
		if err != nil || !objbytes.IsObject(object.Of(body)) {
			return err
		}
		inner, err := objbytes.FindMember(body, object, "metadata")
		if err != nil {
			return err
		}
		return note(inner)
	})
	slices.SortFunc(places, func(a, b span) int { return a.Start - b.Start })
	return places, err
}

func stampProto(body []byte, version func(string) string) ([]byte, error) {
	envelope, err := objbytes.OpenEnvelope(body)
	if err != nil {
		return nil, err
	}
	if envelope.RawField == (span{}) {
		return body, nil
	}
	raw, err := protoFieldAt(body, envelope.RawField.Start, envelope.RawField.End)
	if err != nil {
		return nil, err
	}
	stamped, err := appendStamped(nil, raw.Value, version)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(body)+2*maxVersion)
	out = append(out, body[:raw.whole.Start]...)
	out = objbytes.AppendBytes(out, objbytes.UnknownRaw, stamped)
	return append(out, body[raw.whole.End:]...), nil
}

// appendStamped appends an object in protobuf, without its envelope, with another resourceVersion.
func appendStamped(dst, object []byte, version func(string) string) ([]byte, error) {
	var metadata protoField
	for i := 0; i < len(object); {
		f, err := protoFieldAt(object, i, len(object))
		if err != nil {
			return dst, err
		}
		if f.IsBytes(objbytes.ObjectMetadata) { // the first field that API servers write
			metadata = f
			break
		}
		i = f.whole.End
	}
	if metadata.Number == 0 {
		return append(dst, object...), nil
	}
	var at protoField
	err := eachField(object, metadata.value, func(f protoField) error {
		if f.IsBytes(objbytes.MetaVersion) {
			at = f
		}
		if f.Number >= objbytes.MetaVersion { // they are written in the order of their numbers
			return objbytes.ErrStop
		}
		return nil
	})
	if err != nil {
		return dst, err
	}
	if len(at.Value) == 0 {
		return append(dst, object...), nil
	}
	with := version(string(at.Value))
	size := len(metadata.Value) - len(at.Whole) + objbytes.SizeBytes(objbytes.MetaVersion, len(with))
	dst = append(dst, object[:metadata.length.Start]...)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = append(dst, object[metadata.value.Start:at.whole.Start]...)
	dst = objbytes.AppendString(dst, objbytes.MetaVersion, with)
	return append(dst, object[at.whole.End:]...), nil
}
