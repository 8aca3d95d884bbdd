package serve

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// encoder encodes the objects of a resource in a form.
type encoder struct {
	*resource
	form
	now time.Time
}

// object returns an encoded object for a get response or a watch event.
func (e *encoder) object(o clustercache.Object) ([]byte, error) {
	switch {
	case e.shape == table:
		return e.tableOf(o, true)
	case e.isProtobuf():
		raw, err := e.item(o)
		if err != nil {
			return nil, err
		}
		return enveloped(e.itemKind(), raw), nil
	default:
		return e.item(o)
	}
}

// itemKind is the kind of the objects in a response.
func (e *encoder) itemKind() schema.GroupVersionKind {
	if e.shape == metadataOnly {
		return e.version.WithKind("PartialObjectMetadata")
	}
	return e.kind
}

// listKind is the kind of a list.
func (e *encoder) listKind() schema.GroupVersionKind {
	switch e.shape {
	case table:
		return e.version.WithKind("Table")
	case metadataOnly:
		return e.version.WithKind("PartialObjectMetadataList")
	}
	if e.anyKind {
		return e.kind.GroupVersion().WithKind("List")
	}
	return e.kind.GroupVersion().WithKind(e.kind.Kind + "List")
}

// item returns an encoded object for a list: without an envelope in protobuf, as a row in a Table.
func (e *encoder) item(o clustercache.Object) ([]byte, error) {
	switch {
	case e.shape == table:
		return e.row(o)
	case e.shape == metadataOnly:
		return e.metadata(o)
	case !e.isProtobuf():
		object, err := e.decode(o.Raw)
		if err != nil {
			return nil, err
		}
		return json.Marshal(object)
	case e.convert == nil:
		return o.Raw, nil
	default:
		object, err := e.decode(o.Raw)
		if err != nil {
			return nil, err
		}
		message, ok := object.(interface{ Marshal() ([]byte, error) })
		if !ok {
			return nil, fmt.Errorf("%s cannot be encoded as protobuf", e.kind.Kind)
		}
		return message.Marshal()
	}
}

// metadata returns the encoded metadata of an object.
func (e *encoder) metadata(o clustercache.Object) ([]byte, error) {
	encoded, err := metadataOf(o.Raw)
	if err != nil {
		return nil, err
	}
	if e.isProtobuf() {
		return objbytes.AppendBytes(nil, objbytes.ObjectMetadata, encoded), nil
	}
	partial, err := e.partial(encoded)
	if err != nil {
		return nil, err
	}
	return json.Marshal(partial)
}

func (e *encoder) partial(encoded []byte) (*metav1.PartialObjectMetadata, error) {
	partial := &metav1.PartialObjectMetadata{}
	if err := partial.ObjectMeta.Unmarshal(encoded); err != nil {
		return nil, fmt.Errorf("decoding metadata: %w", err)
	}
	version := e.version
	if version.Empty() {
		version = metav1.SchemeGroupVersion
	}
	partial.SetGroupVersionKind(version.WithKind("PartialObjectMetadata"))
	return partial, nil
}

// row returns an object as a Table row.
func (e *encoder) row(o clustercache.Object) ([]byte, error) {
	object, err := e.decodeCached(o.Raw)
	if err != nil {
		return nil, err
	}
	row := metav1.TableRow{Cells: e.printer.Cells(object, o.Cluster, e.now)}
	switch e.include {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		if e.convert != nil {
			if object, err = e.decode(o.Raw); err != nil {
				return nil, err
			}
		}
		row.Object.Object = object
	default:
		encoded, err := metadataOf(o.Raw)
		if err != nil {
			return nil, err
		}
		if row.Object.Object, err = e.partial(encoded); err != nil {
			return nil, err
		}
	}
	return json.Marshal(row)
}

// tableOf returns a Table with one row.
func (e *encoder) tableOf(o clustercache.Object, headers bool) ([]byte, error) {
	row, err := e.row(o)
	if err != nil {
		return nil, err
	}
	return e.tableAround(row, formatVersion(o.Version), headers)
}

// tableAround returns a Table with one encoded row.
func (e *encoder) tableAround(row []byte, version string, headers bool) ([]byte, error) {
	t := struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ListMeta   `json:"metadata"`
		ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions"`
		Rows              []json.RawMessage              `json:"rows"`
	}{ListMeta: metav1.ListMeta{ResourceVersion: version}, Rows: []json.RawMessage{row}}
	t.APIVersion, t.Kind = e.listKind().ToAPIVersionAndKind()
	if headers {
		t.ColumnDefinitions = e.printer.Columns
	}
	return json.Marshal(t)
}

// bookmark returns the object of a bookmark.
func (e *encoder) bookmark(version uint64, initialEnd bool) ([]byte, error) {
	meta := metav1.ObjectMeta{ResourceVersion: formatVersion(version)}
	if initialEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	encoded, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	raw := objbytes.AppendBytes(nil, objbytes.ObjectMetadata, encoded)
	if e.shape != table {
		return e.object(clustercache.Object{Raw: raw, Version: version})
	}
	partial, err := e.partial(encoded)
	if err != nil {
		return nil, err
	}
	row, err := json.Marshal(metav1.TableRow{Cells: make([]any, len(e.printer.Columns)), Object: runtime.RawExtension{Object: partial}})
	if err != nil {
		return nil, err
	}
	return e.tableAround(row, formatVersion(version), false)
}

// writeEvent writes a watch event with an encoded object.
func (e *encoder) writeEvent(w io.Writer, kind string, object []byte) error {
	if !e.isProtobuf() {
		for _, part := range []string{`{"type":"`, kind, `","object":`} {
			if _, err := io.WriteString(w, part); err != nil {
				return err
			}
		}
		if _, err := w.Write(object); err != nil {
			return err
		}
		_, err := io.WriteString(w, "}\n")
		return err
	}
	extension := objbytes.SizeBytes(objbytes.RawExtensionRaw, len(object))
	size := objbytes.SizeBytes(objbytes.WatchEventType, len(kind)) + objbytes.SizeBytes(objbytes.WatchEventObject, extension)
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+size), uint32(size))
	frame = objbytes.AppendString(frame, objbytes.WatchEventType, kind)
	frame = protowire.AppendVarint(protowire.AppendTag(frame, objbytes.WatchEventObject, protowire.BytesType), uint64(extension))
	frame = objbytes.AppendBytes(frame, objbytes.RawExtensionRaw, object)
	_, err := w.Write(frame)
	return err
}

// enveloped wraps an encoded object in a protobuf envelope.
func enveloped(kind schema.GroupVersionKind, raw []byte) []byte {
	apiVersion, name := kind.ToAPIVersionAndKind()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: name}, Raw: raw}
	out := make([]byte, len(objbytes.ProtobufPrefix)+unknown.Size())
	copy(out, objbytes.ProtobufPrefix)
	n, _ := unknown.MarshalToSizedBuffer(out[len(objbytes.ProtobufPrefix):]) // the buffer has the exact size
	return out[:len(objbytes.ProtobufPrefix)+n]
}

// metadataOf returns the encoded metadata of an object.
func metadataOf(raw []byte) ([]byte, error) {
	metadata, err := objbytes.ProtobufMetadata(raw)
	return metadata.Value, err
}

func formatVersion(version uint64) string { return strconv.FormatUint(version, 10) }
