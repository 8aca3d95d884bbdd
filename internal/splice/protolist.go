package splice

import (
	"bufio"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// ProtobufContentType is the content type of Kubernetes objects in protobuf.
const ProtobufContentType = objbytes.ProtobufMediaType

// maxProtoList bounds a list in protobuf.
const maxProtoList = 1 << 30

// MergeProto merges several protobuf lists into one. In protobuf the length of a list precedes it. Without Limit and Choose everything
// is shown, so that the length follows from the heads of the lists, and they are read object by object like JSON. Otherwise they are
// read completely first.
func MergeProto(w io.Writer, lists []io.Reader, options ListOptions) (Page, error) {
	if options.Limit == 0 && options.Choose == nil && len(lists) > 0 {
		return streamProto(w, lists, options)
	}
	sources := make([]source, len(lists))
	var typeMeta []byte
	for i, r := range lists {
		list, err := readProtoList(r)
		if err != nil {
			return Page{}, &SourceError{Source: i, Err: err}
		}
		if i == 0 {
			typeMeta = list.TypeMeta.Of(list.body)
		}
		sources[i] = list
	}
	m, err := newMerger(sources, options)
	if err != nil {
		return Page{}, err
	}
	var items [][]byte
	size := 0
	if err := m.each(func(item *Item) error {
		items = append(items, item.raw)
		size += objbytes.SizeBytes(objbytes.ListItems, len(item.raw))
		return nil
	}); err != nil {
		return Page{}, err
	}
	page, metadata, err := m.finish()
	if err != nil {
		return page, err
	}
	if options.Begin != nil {
		options.Begin()
	}
	out := newProtoWriter(w)
	out.head(typeMeta, metadata, size)
	for _, item := range items {
		if err := out.item(item); err != nil {
			return page, err
		}
	}
	return page, out.finish()
}

// protoList is a list of objects in protobuf.
type protoList struct {
	objbytes.Envelope
	body []byte
	at   int // the next field of the list
	head listMeta
}

func readProtoList(r io.Reader) (*protoList, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxProtoList+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxProtoList {
		return nil, ErrTooLarge
	}
	object, err := objbytes.OpenEnvelope(body)
	if err != nil {
		return nil, err
	}
	metadata, err := objbytes.LastBytes(object.Raw.Of(body), objbytes.ObjectMetadata)
	if err != nil {
		return nil, err
	}
	head, err := parseProtoListMeta(metadata)
	return &protoList{Envelope: object, body: body, at: object.Raw.Start, head: head}, err
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

func (l *protoList) meta() listMeta { return l.head }

func (l *protoList) next(item *Item) error {
	for l.at < l.Raw.End {
		f, err := protoFieldAt(l.body, l.at, l.Raw.End)
		if err != nil {
			return err
		}
		l.at = f.whole.End
		if !f.IsBytes(objbytes.ListItems) {
			continue
		}
		item.raw, item.parse = f.Value, parseProtoItem
		item.key, err = appendProtoKey(item.key[:0], item.raw)
		return err
	}
	return io.EOF
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
	w.scratch = protowire.AppendTag(w.scratch[:0], objbytes.ListItems, protowire.BytesType)
	w.scratch = protowire.AppendVarint(w.scratch, uint64(len(raw)))
	_, _ = w.Write(w.scratch)
	_, err := w.Write(raw)
	return err
}

// finish writes what follows the objects.
func (w *protoWriter) finish() error {
	_, _ = w.Write(objbytes.AppendString(objbytes.AppendString(nil, objbytes.UnknownContentEncoding, ""), objbytes.UnknownContentType, ""))
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing a merged list: %w", err)
	}
	return nil
}
