package splice

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// MergeJSON merges several JSON lists into one while it reads them: it holds one object of each list at a time. After a failure behind
// Begin the output is incomplete, and the connection must be aborted for the client to notice.
//
// The metadata comes last: lists of custom resources have theirs at the end.
func MergeJSON(w io.Writer, lists []io.Reader, options ListOptions) (Page, error) {
	sources := make([]source, len(lists))
	heads := make([]*jsonList, len(lists))
	for i, r := range lists {
		heads[i] = newJSONList(r, "items", options.MaxObject)
		heads[i].hold = options.Hold
		sources[i] = objectList{heads[i]}
	}
	m, err := newMerger(sources, options)
	if err != nil {
		return Page{}, err
	}
	out := newJSONWriter(w, options.Begin, heads)
	out.head()
	out.open("items")
	var stamp stamper
	if err := m.each(func(item *Item) error {
		raw, err := stamp.object(item, options.Version)
		if err != nil {
			return &SourceError{Source: item.Source, Err: err}
		}
		return out.element(raw)
	}, nil); err != nil {
		return Page{}, err
	}
	return out.finish(m)
}

// stamper replaces the resourceVersions of objects in JSON.
type stamper struct{ scratch []byte }

// object returns an object of a list. It is valid until the next call.
func (s *stamper) object(item *Item, version func(*Item, string) string) ([]byte, error) {
	return s.within(item, span{Start: 0, End: len(item.raw)}, version)
}

// row returns a row of a Table. It is valid until the next call.
func (s *stamper) row(item *Item, version func(*Item, string) string) ([]byte, error) {
	if version == nil {
		return item.raw, nil
	}
	object, err := rowObject(item.raw)
	if err != nil {
		return nil, err
	}
	return s.within(item, object, version)
}

func (s *stamper) within(item *Item, object span, version func(*Item, string) string) ([]byte, error) {
	if version == nil {
		return item.raw, nil
	}
	metadata, err := objbytes.FindMember(item.raw, object, "metadata")
	if err != nil || !objbytes.IsObject(metadata.Of(item.raw)) {
		return item.raw, err
	}
	at, err := objbytes.FindMember(item.raw, metadata, "resourceVersion")
	if err != nil || !objbytes.IsString(at.Of(item.raw)) {
		return item.raw, err
	}
	revision, err := objbytes.String(at.Of(item.raw))
	if err != nil || len(revision) == 0 {
		return item.raw, err
	}
	s.scratch = append(s.scratch[:0], item.raw[:at.Start]...)
	s.scratch = objbytes.AppendQuoted(s.scratch, version(item, string(revision)))
	s.scratch = append(s.scratch, item.raw[at.End:]...)
	return s.scratch, nil
}

// objectList is a list of objects in JSON.
type objectList struct{ *jsonList }

func (l objectList) meta() listMeta { return l.jsonList.meta }

func (l objectList) next(item *Item) (err error) {
	item.raw, err = l.jsonList.next()
	if err != nil {
		return err
	}
	item.parse = parseJSONItem
	item.key, err = appendJSONKey(item.key[:0], item.raw)
	return err
}

func parseJSONItem(item *Item) (Object, error) {
	metadata, err := objbytes.FindMember(item.raw, span{Start: 0, End: len(item.raw)}, "metadata")
	if err != nil {
		return Object{}, err
	}
	object, _, err := parseJSONMetadata(item.raw, metadata)
	return object, err
}

// jsonWriter writes a list.
type jsonWriter struct {
	*bufio.Writer
	lists             []*jsonList
	kind, apiVersion  bool // already written
	members, elements int
	scratch           []byte
}

func newJSONWriter(w io.Writer, begin func(), lists []*jsonList) *jsonWriter {
	if begin != nil {
		w = &beginWriter{Writer: w, begin: begin}
	}
	return &jsonWriter{Writer: bufio.NewWriterSize(w, firstBuffer), lists: lists}
}

// beginWriter calls begin before the first byte is written.
type beginWriter struct {
	io.Writer
	begin func()
}

func (w *beginWriter) Write(b []byte) (int, error) {
	if w.begin != nil {
		w.begin()
		w.begin = nil
	}
	return w.Writer.Write(b)
}

// member starts a member of the list. The buffered writer keeps errors until the end.
func (w *jsonWriter) member(name string) {
	separator := byte(',')
	if w.members == 0 {
		separator = '{'
	}
	w.members++
	_ = w.WriteByte(separator)
	w.scratch = append(objbytes.AppendQuoted(w.scratch[:0], name), ':')
	_, _ = w.Write(w.scratch)
}

// head writes the kind and apiVersion, as far as the sources have them yet.
func (w *jsonWriter) head() {
	for _, list := range w.lists {
		if !w.kind && list.kind != nil {
			w.member("kind")
			_, _ = w.Write(list.kind)
			w.kind = true
		}
		if !w.apiVersion && list.apiVersion != nil {
			w.member("apiVersion")
			_, _ = w.Write(list.apiVersion)
			w.apiVersion = true
		}
	}
}

func (w *jsonWriter) open(array string) {
	w.member(array)
	_ = w.WriteByte('[')
}

// element writes an object. Its error ends a merge whose output is not read.
func (w *jsonWriter) element(raw []byte) error {
	if w.elements > 0 {
		_ = w.WriteByte(',')
	}
	w.elements++
	_, err := w.Write(raw)
	return err
}

// finish closes the array and writes the rest of the list.
func (w *jsonWriter) finish(m *merger) (Page, error) {
	page, metadata, err := m.finish()
	if err != nil {
		return page, err
	}
	_ = w.WriteByte(']')
	w.head()
	w.member("metadata")
	w.scratch = append(w.scratch[:0], `{"resourceVersion":`...)
	w.scratch = objbytes.AppendQuoted(w.scratch, metadata.ResourceVersion)
	if metadata.Continue != "" {
		w.scratch = append(w.scratch, `,"continue":`...)
		w.scratch = objbytes.AppendQuoted(w.scratch, metadata.Continue)
		if metadata.Remaining >= 0 {
			w.scratch = append(w.scratch, `,"remainingItemCount":`...)
			w.scratch = strconv.AppendInt(w.scratch, metadata.Remaining, 10)
		}
	}
	w.scratch = append(w.scratch, "}}\n"...)
	_, _ = w.Write(w.scratch)
	if err := w.Flush(); err != nil {
		return page, fmt.Errorf("writing a merged list: %w", err)
	}
	return page, nil
}
