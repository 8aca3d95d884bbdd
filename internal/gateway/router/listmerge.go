package router

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/splice"
)

const (
	// listSource is the memory that the list of a cell needs if the client does not read: the buffers of the merge and of the connection.
	listSource = 64<<10 + fleet.StreamBuffer
	// listResult is the memory that the merged list needs: the part that is held back, and the compressor.
	listResult = 1 << 20
	// maxYAML limits a list that is converted to YAML, and yamlCopies is how often as much memory is needed for that.
	maxYAML    = 64 << 20
	yamlCopies = 10
)

// merge merges the cells' answers and writes the list.
func (rt *Router) merge(w http.ResponseWriter, r *http.Request, c *call, q *query, a *answers, form form) {
	hold := func(bytes int) error { return forward.Hold(r.Context(), int64(bytes)) }
	if err := hold(len(a.responses)*listSource + listResult); err != nil {
		forward.WriteError(w, r, err)
		return
	}
	begun := false
	stream := newListWriter(w, r, a.responses[0], form)
	var out io.Writer = stream
	yaml := heldBuffer{hold: hold}
	if form.yaml {
		out = &yaml
	}
	selection := rt.newSelection(c, q, a.cells)
	options := splice.ListOptions{
		Limit:   int(q.Limit),
		Hold:    hold,
		Opened:  selection.opened,
		Choose:  selection.choose,
		Version: rt.listVersion(c, a),
		Finish:  func(page splice.Page) (splice.Metadata, error) { return rt.finish(r, c, q, a, page, selection.dropped) },
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

// listVersion returns the function with which a list shows the versions of its objects.
func (rt *Router) listVersion(c *call, a *answers) func(*splice.Item, string) string {
	if !c.showsVersions() {
		return nil
	}
	return func(item *splice.Item, revision string) string {
		namespace, name, _ := strings.Cut(item.Key(), "/")
		version, _ := rt.version(c, a.cells[item.Source], namespace, name, revision)
		return version
	}
}

// heldBuffer is a list to be converted to YAML.
type heldBuffer struct {
	bytes.Buffer
	hold func(bytes int) error
}

// Write implements io.Writer.
func (b *heldBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxYAML {
		return 0, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("a list in YAML has at most %d bytes; use limit to request less, or another format", maxYAML))
	}
	if err := b.hold(yamlCopies * len(p)); err != nil {
		return 0, err
	}
	return b.Buffer.Write(p)
}

// spliced merges answers of one form.
func (rt *Router) spliced(out io.Writer, responses []*http.Response, form form, omitObjects bool, options splice.ListOptions) error {
	readers := make([]io.Reader, len(responses))
	for i, response := range responses {
		readers[i] = response.Body
	}
	if form.encoding == splice.Protobuf {
		_, err := splice.MergeProto(out, readers, options)
		return err
	}
	if form.table {
		_, err := splice.MergeTables(out, readers, splice.TableOptions{ListOptions: options, OmitObjects: omitObjects})
		return err
	}
	_, err := splice.MergeJSON(out, readers, options)
	return err
}
