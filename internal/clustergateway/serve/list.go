package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// list serves a list.
func (s *Server) list(w http.ResponseWriter, r *http.Request, q *question, e *encoder) {
	options := clustercache.ListOptions{Filter: q.filter, Limit: int(q.Limit), Continue: q.Continue}
	if q.version != 0 {
		if err := e.store.Foreign(q.version); err != nil {
			WriteError(w, r, err)
			return
		}
	}
	if q.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		options.Version = q.version
	}
	list, err := e.store.List(options)
	if err != nil {
		WriteError(w, r, err)
		return
	}
	defer list.Close()
	out := newCompressor(w, r, e.mediaType)
	if _, err = e.holdList(holder{r.Context()}, list); err == nil {
		err = e.writeList(out, list)
	}
	if err == nil {
		err = out.Close()
	}
	switch {
	case err != nil && out.begun:
		failed(r, err)
	case err != nil:
		if _, ok := err.(apierrors.APIStatus); !ok { // the store does not wrap its errors
			err = apierrors.NewInternalError(err)
		}
		WriteError(w, r, err)
	}
}

// holdList counts the memory of a list that is written object by object, and returns it.
func (e *encoder) holdList(h holder, list *clustercache.List) (int, error) {
	largest, err := list.Largest()
	if err != nil {
		return 0, err
	}
	size := listed*list.Len() + e.copies()*largest
	return size, h.hold(size)
}

// writeList writes a list object by object.
func (e *encoder) writeList(out io.Writer, list *clustercache.List) error {
	if e.isProtobuf() && e.shape == whole && e.convert == nil {
		return list.WriteProtobuf(out)
	}
	buffered := bufio.NewWriterSize(out, 64<<10)
	write := e.writeJSON
	switch {
	case e.isProtobuf():
		write = e.writeProtobuf
	case e.mediaType == runtime.ContentTypeYAML:
		write = e.writeYAML
	case e.pretty:
		write = e.writePretty
	}
	if err := write(buffered, list); err != nil {
		return err
	}
	return buffered.Flush()
}

// items yields the encoded objects of a list.
func (e *encoder) items(list *clustercache.List) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for object, err := range list.Objects() {
			var item []byte
			if err == nil {
				item, err = e.item(object)
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// writeProtobuf writes a list whose objects are not cached in the form the client wants. They are encoded twice: the length precedes the
// content.
func (e *encoder) writeProtobuf(w io.Writer, list *clustercache.List) error {
	size := 0
	for item, err := range e.items(list) {
		if err != nil {
			return err
		}
		size += objbytes.SizeBytes(objbytes.ListItems, len(item))
	}
	meta := listMeta(list)
	encoded, err := meta.Marshal()
	if err != nil {
		return err
	}
	apiVersion, kind := e.listKind().ToAPIVersionAndKind()
	head := objbytes.AppendTypeMeta(nil, apiVersion, kind)
	head = protowire.AppendTag(head, objbytes.UnknownRaw, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(objbytes.SizeBytes(objbytes.ObjectMetadata, len(encoded))+size))
	if _, err := w.Write(objbytes.AppendBytes(head, objbytes.ObjectMetadata, encoded)); err != nil {
		return err
	}
	for item, err := range e.items(list) {
		if err != nil {
			return err
		}
		size -= objbytes.SizeBytes(objbytes.ListItems, len(item))
		head = protowire.AppendVarint(protowire.AppendTag(head[:0], objbytes.ListItems, protowire.BytesType), uint64(len(item)))
		if _, err := w.Write(head); err != nil {
			return err
		}
		if _, err := w.Write(item); err != nil {
			return err
		}
	}
	if size != 0 {
		return fmt.Errorf("the list is %d bytes shorter than announced", size)
	}
	return nil
}

// listMeta returns the metadata of a list.
func listMeta(list *clustercache.List) metav1.ListMeta {
	token, remaining := list.Continue()
	return metav1.ListMeta{ResourceVersion: formatVersion(list.Version()), Continue: token, RemainingItemCount: remaining}
}

func (e *encoder) writeJSON(w io.Writer, list *clustercache.List) error {
	apiVersion, kind := e.listKind().ToAPIVersionAndKind()
	meta, err := json.Marshal(listMeta(list))
	if err != nil {
		return err
	}
	head, items := `{"kind":"`+kind+`","apiVersion":"`+apiVersion+`","metadata":`+string(meta), "items"
	if e.shape == table {
		columns, err := json.Marshal(e.printer.Columns)
		if err != nil {
			return err
		}
		head, items = head+`,"columnDefinitions":`+string(columns), "rows"
	}
	if _, err := io.WriteString(w, head+`,"`+items+`":[`); err != nil {
		return err
	}
	separator := ""
	for item, err := range e.items(list) {
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, separator); err != nil {
			return err
		}
		if _, err := w.Write(item); err != nil {
			return err
		}
		separator = ","
	}
	_, err = io.WriteString(w, "]}\n")
	return err
}
