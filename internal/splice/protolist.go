package splice

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// ProtobufContentType is the content type of Kubernetes objects in protobuf.
const ProtobufContentType = objbytes.ProtobufMediaType

// maxProtoList bounds a list in protobuf.
const maxProtoList = 1 << 30

// MergeProto merges several protobuf lists into one, object by object like JSON.
//
// In protobuf the length of a list precedes it. Without Limit it is the sum of those of the lists: an object that is not shown is
// replaced by an unknown field of the same size, which decoders skip. With Limit the objects of the page are held in memory. So the
// page ends before Limit when they reach MaxPage; clients have to expect fewer objects than the limit anyway.
//
// With Version the size of a list is not known before its end. A list up to MaxPage is held in memory. Of a larger one the rest is
// written with room for the longest versions, and an unknown field at the end takes up what is left of it.
func MergeProto(w io.Writer, lists []io.Reader, options ListOptions) (Page, error) {
	m, streams, err := openProto(lists, options)
	if err != nil {
		return Page{}, err
	}
	switch {
	case options.Limit == 0 && options.Version != nil:
		return m.stampProto(w, streams)
	case options.Limit == 0:
		return m.streamProto(w, streams)
	}
	return m.pageProto(w, streams[0].typeMeta)
}

func openProto(lists []io.Reader, options ListOptions) (*merger, []*protoStream, error) {
	sources, streams := make([]source, len(lists)), make([]*protoStream, len(lists))
	for i, r := range lists {
		stream, err := openProtoStream(r, options.MaxObject, options.Hold)
		if err == nil && stream.head.token != "" && options.Limit == 0 {
			err = errors.New("the list has further pages although the request had no limit")
		}
		if err == nil && stream.left > maxProtoList {
			err = ErrTooLarge
		}
		if err != nil {
			return nil, nil, &SourceError{Source: i, Err: err}
		}
		stream.size = int(stream.left)
		sources[i], streams[i] = stream, stream
	}
	m, err := newMerger(sources, options)
	return m, streams, err
}

// pageProto writes a page of a list.
func (m *merger) pageProto(w io.Writer, typeMeta []byte) (Page, error) {
	most := m.options.MaxPage
	if most <= 0 {
		most = defaultMaxPage
	}
	var items []byte // with tags and lengths
	m.full = func() bool { return len(items) >= most }
	var stamp protoStamper
	if err := m.each(func(item *Item) error {
		raw, err := stamp.object(item, m.options.Version)
		if err == nil {
			items, err = m.hold(items, raw)
		}
		return err
	}, nil); err != nil {
		return Page{}, err
	}
	page, metadata, err := m.finish()
	if err != nil {
		return page, err
	}
	if m.options.Begin != nil {
		m.options.Begin()
	}
	out := newProtoWriter(w)
	out.head(typeMeta, metadata, len(items))
	_, _ = out.Write(items)
	return page, out.finish()
}

// hold appends an object to those that are held in memory.
func (m *merger) hold(items, raw []byte) ([]byte, error) {
	if more := len(items) + objbytes.SizeBytes(objbytes.ListItems, len(raw)) - cap(items); more > 0 {
		more = max(more, cap(items))
		if err := held(m.options.Hold, more); err != nil {
			return items, err
		}
		items = slices.Grow(items, more)
	}
	return objbytes.AppendBytes(items, objbytes.ListItems, raw), nil
}

// protoStamper replaces the resourceVersions of objects in protobuf.
type protoStamper struct{ scratch []byte }

// object returns an object of a list. It is valid until the next call.
func (s *protoStamper) object(item *Item, version func(*Item, string) string) (_ []byte, err error) {
	if version == nil {
		return item.raw, nil
	}
	s.scratch, err = appendStamped(s.scratch[:0], item.raw, func(revision string) string { return version(item, revision) })
	if err != nil {
		return nil, &SourceError{Source: item.Source, Err: err}
	}
	return s.scratch, nil
}

func parseProtoListMeta(metadata []byte) (listMeta, error) {
	head := listMeta{remaining: -1}
	err := objbytes.EachField(metadata, func(f objbytes.Field) error {
		switch {
		case f.IsBytes(objbytes.ListMetaVersion):
			head.version = string(f.Value)
		case f.IsBytes(objbytes.ListMetaContinue):
			head.token = string(f.Value)
		case f.Number == objbytes.ListMetaRemaining && f.Type == protowire.VarintType:
			head.remaining = max(int64(f.Varint), -1)
		}
		return nil
	})
	return head, err
}

func parseProtoItem(item *Item) (Object, error) {
	metadata, err := objbytes.ProtobufMetadata(item.raw)
	if err != nil {
		return Object{}, err
	}
	object, _, err := parseProtoMetadata(metadata.Value, span{End: len(metadata.Value)})
	return object, err
}

// protoWriter writes a list.
type protoWriter struct {
	*bufio.Writer
	scratch []byte
}

func newProtoWriter(w io.Writer) *protoWriter {
	return &protoWriter{Writer: bufio.NewWriterSize(w, firstBuffer)}
}

// head writes everything before the objects, which have a total size including tags and lengths. The buffered writer keeps errors until
// the end.
func (w *protoWriter) head(typeMeta []byte, metadata Metadata, size int) {
	var meta []byte
	meta = objbytes.AppendString(meta, objbytes.ListMetaVersion, metadata.ResourceVersion)
	meta = objbytes.AppendString(meta, objbytes.ListMetaContinue, metadata.Continue)
	if metadata.Continue != "" && metadata.Remaining >= 0 {
		meta = protowire.AppendTag(meta, objbytes.ListMetaRemaining, protowire.VarintType)
		meta = protowire.AppendVarint(meta, uint64(metadata.Remaining))
	}
	size += objbytes.SizeBytes(objbytes.ObjectMetadata, len(meta))
	head := append([]byte(nil), []byte(objbytes.ProtobufPrefix)...)
	head = objbytes.AppendBytes(head, objbytes.UnknownTypeMeta, typeMeta)
	head = protowire.AppendTag(head, objbytes.UnknownRaw, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	head = objbytes.AppendBytes(head, objbytes.ObjectMetadata, meta)
	_, _ = w.Write(head)
}

// item writes an object. Its error ends a merge whose output is not read.
func (w *protoWriter) item(raw []byte) error {
	w.field(objbytes.ListItems, len(raw))
	_, err := w.Write(raw)
	return err
}

// listPadding is a field that no list has. Its tag is as long as that of an object.
const listPadding = 15

// omit writes a field that decoders skip, of the size of an object.
func (w *protoWriter) omit(size int) error {
	w.field(listPadding, size)
	for size > len(zeros) {
		_, _ = w.Write(zeros[:])
		size -= len(zeros)
	}
	_, err := w.Write(zeros[:size])
	return err
}

var zeros [4 << 10]byte

// pad writes fields that decoders skip, of a total size of at least four bytes.
func (w *protoWriter) pad(size int) error {
	content := size - 2
	for objbytes.SizeBytes(listPadding, content) > size {
		content--
	}
	if objbytes.SizeBytes(listPadding, content) < size { // no field has this size, but two have
		_ = w.omit(0)
		return w.pad(size - objbytes.SizeBytes(listPadding, 0))
	}
	return w.omit(content)
}

func (w *protoWriter) field(number protowire.Number, size int) {
	w.scratch = protowire.AppendTag(w.scratch[:0], number, protowire.BytesType)
	w.scratch = protowire.AppendVarint(w.scratch, uint64(size))
	_, _ = w.Write(w.scratch)
}

// finish writes what follows the objects.
func (w *protoWriter) finish() error {
	_, _ = w.Write(objbytes.AppendString(objbytes.AppendString(nil, objbytes.UnknownContentEncoding, ""), objbytes.UnknownContentType, ""))
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing a merged list: %w", err)
	}
	return nil
}
