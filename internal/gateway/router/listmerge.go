package router

import (
	"bytes"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/splice"
)

// maxAnswer limits a cell's list in protobuf, which has to be held in memory.
const maxAnswer = 1 << 30

// merge merges the cells' answers and writes the list.
func (rt *Router) merge(w http.ResponseWriter, r *http.Request, c *call, q *query, a *answers, form form) {
	begun := false
	var out io.Writer = w
	var yaml bytes.Buffer
	if form.yaml {
		out = &yaml
	}
	stream := newListWriter(w, r, a.responses[0], form)
	if !form.yaml {
		out = stream
	}
	selection := rt.newSelection(c, q, a.cells)
	options := splice.ListOptions{
		Limit:  int(q.Limit),
		Opened: selection.opened,
		Choose: selection.choose,
		Finish: func(page splice.Page) (splice.Metadata, error) { return rt.finish(c, q, a, page) },
		Begin: func() {
			begun = true
			if !form.yaml {
				stream.begin()
			}
		},
	}
	err := rt.spliced(out, a.responses, form, q.values.Get("includeObject") == "None", options)
	if err == nil && form.yaml {
		err = stream.writeYAML(yaml.Bytes())
	}
	if err == nil {
		err = stream.close()
	}
	switch {
	case err == nil:
	case begun && !form.yaml:
		klog.FromContext(r.Context()).V(2).Info("merging a list failed", "resource", c.qualified(), "err", err)
		panic(http.ErrAbortHandler) // the client must not take the list for complete
	default:
		klog.FromContext(r.Context()).V(2).Info("merging a list failed", "resource", c.qualified(), "err", err)
		forward.WriteError(w, r, a.asStatus(c, err))
	}
}

// spliced merges answers of one form.
func (rt *Router) spliced(out io.Writer, responses []*http.Response, form form, omitObjects bool, options splice.ListOptions) error {
	readers := make([]io.Reader, len(responses))
	for i, response := range responses {
		readers[i] = response.Body
	}
	if form.encoding == splice.Protobuf {
		// MergeProto reads the lists one after the other; no cell should have to wait for its turn.
		lists, err := readAll(responses, rt.maxList)
		if err != nil {
			return err
		}
		for i, list := range lists {
			readers[i] = bytes.NewReader(list)
		}
		_, err = splice.MergeProto(out, readers, options)
		return err
	}
	if form.table {
		_, err := splice.MergeTables(out, readers, splice.TableOptions{ListOptions: options, OmitObjects: omitObjects})
		return err
	}
	_, err := splice.MergeJSON(out, readers, options)
	return err
}

// readAll reads the answers concurrently.
func readAll(responses []*http.Response, bound int64) ([][]byte, error) {
	lists := make([][]byte, len(responses))
	var group errgroup.Group
	for i, response := range responses {
		group.Go(func() error {
			body, err := readAnswer(response, bound)
			if err != nil {
				return &splice.SourceError{Source: i, Err: err}
			}
			lists[i] = body
			return nil
		})
	}
	return lists, group.Wait()
}
