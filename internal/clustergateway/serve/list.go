package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"

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
	switch {
	case e.isProtobuf() && e.shape == whole && e.convert == nil:
		out := newCompressor(w, r, e.mediaType)
		err = list.WriteProtobuf(out)
		if err == nil {
			err = out.Close()
		}
	case e.isProtobuf():
		err = e.bufferedList(w, r, list, e.appendProtobuf)
	case e.pretty || e.mediaType == runtime.ContentTypeYAML:
		err = e.bufferedList(w, r, list, e.appendText)
	default:
		out := newCompressor(w, r, e.mediaType)
		buffered := bufio.NewWriterSize(out, 64<<10)
		if err = e.writeJSON(buffered, list); err == nil {
			err = buffered.Flush()
		}
		if err == nil {
			err = out.Close()
		}
	}
	if err != nil {
		failed(r, err)
	}
}

// bufferedList serves a list that must be complete before its first byte is sent.
func (e *encoder) bufferedList(w http.ResponseWriter, r *http.Request, list *clustercache.List, encode func(*clustercache.List) ([]byte, error)) error {
	body, err := encode(list)
	if err != nil {
		if _, ok := err.(apierrors.APIStatus); !ok { // the store does not wrap its errors
			err = apierrors.NewInternalError(err)
		}
		WriteError(w, r, err)
		return nil
	}
	out := newCompressor(w, r, e.mediaType)
	if _, err := out.Write(body); err != nil {
		return err
	}
	return out.Close()
}

func (e *encoder) appendText(list *clustercache.List) ([]byte, error) {
	var out bytes.Buffer
	if err := e.writeJSON(&out, list); err != nil {
		return nil, err
	}
	return e.dress(out.Bytes())
}

// appendProtobuf encodes a list whose objects are not cached in the form the client wants.
func (e *encoder) appendProtobuf(list *clustercache.List) ([]byte, error) {
	var items []byte
	for object, err := range list.Objects() {
		if err != nil {
			return nil, err
		}
		item, err := e.item(object)
		if err != nil {
			return nil, err
		}
		items = objbytes.AppendBytes(items, objbytes.ListItems, item)
	}
	meta := listMeta(list)
	encoded, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	raw := objbytes.AppendBytes(make([]byte, 0, len(items)+len(encoded)+16), objbytes.ObjectMetadata, encoded)
	return enveloped(e.listKind(), append(raw, items...)), nil
}

// listMeta returns the metadata of a list.
func listMeta(list *clustercache.List) metav1.ListMeta {
	token, remaining := list.Continue()
	return metav1.ListMeta{ResourceVersion: formatVersion(list.Version()), Continue: token, RemainingItemCount: remaining}
}

// writeJSON writes a list object by object.
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
	for object, err := range list.Objects() {
		if err != nil {
			return err
		}
		item, err := e.item(object)
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
