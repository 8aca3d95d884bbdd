package router

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/objbytes"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// answer is a cell's answer, read to its end.
type answer struct {
	*http.Response
	body []byte
	cell slots.Index
}

// read serves a read of one object.
func (rt *Router) read(w http.ResponseWriter, r *http.Request, c *call) {
	request := uncompressed(r)
	var got *answer
	_, err := rt.drive(r.Context(), c, rt.request(c, routing.Read, c.Name, ""), c.Name, exchange{
		fetch: func(cell slots.Index) (state routing.State, err error) {
			got, state, err = rt.fetchFrom(request, c, cell)
			return state, err
		},
	})
	if err != nil {
		if apierrors.IsNotFound(err) {
			rt.warnWithoutLease(w, c)
		}
		forward.WriteError(w, r, err)
		return
	}
	rt.warnWithoutLease(w, c)
	annotate(r.Context(), c.view.Name(got.cell), strconv.FormatInt(c.view.Epoch(), 10))
	if err := got.stamp(rt, c, c.Name); err != nil {
		forward.WriteError(w, r, err)
		return
	}
	got.write(w, r)
}

// uncompressed returns the request without Accept-Encoding, so that the answer can be inspected.
func uncompressed(r *http.Request) *http.Request {
	clone := *r
	clone.Header = maps.Clone(r.Header)
	clone.Header.Del("Accept-Encoding")
	return &clone
}

// write writes the answer to the client, compressed if that is worth it.
func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	if len(a.body) < compressFrom || a.StatusCode != http.StatusOK || !acceptsGzip(r) {
		forward.AnswerHeader(w, a.Response)
		_, _ = w.Write(a.body) // the client may have disconnected
		return
	}
	a.Header.Del("Content-Length")
	forward.CopyHeader(w.Header(), a.Header)
	list := &listWriter{ResponseWriter: w, header: w.Header(), accepts: true}
	list.begin()
	if _, err := list.Write(a.body); err == nil {
		_ = list.close()
	}
}

// fetchFrom reads an object from a cell.
func (rt *Router) fetchFrom(r *http.Request, c *call, cell slots.Index) (*answer, routing.State, error) {
	response, err := rt.insist(rt.withVersion(r, c, cell), c, cell, nil)
	if err != nil {
		return nil, routing.Absent, err
	}
	defer response.Body.Close()
	body, err := readAnswer(r.Context(), response, maxObject)
	if err != nil {
		return nil, routing.Absent, forward.Unread(c.view.Name(cell), err)
	}
	got := &answer{Response: response, body: body, cell: cell}
	switch {
	case response.StatusCode == http.StatusNotFound:
		return got, routing.Absent, nil
	case response.StatusCode != http.StatusOK:
		return got, routing.Live, nil // an error that is served as it is
	case c.Subresource == "scale" || r.URL.Query().Get("includeObject") == "None":
		// The answer does not have the object's labels.
		if !c.view.MayMove(rt.slotOf(c, c.Name, "")) {
			return got, routing.Live, nil
		}
		seen, err := rt.look(r.Context(), c, cell, c.Name)
		return got, seen.state, err
	case bytes.Contains(body, []byte(names.RebalanceStatusLabel)):
		return got, routing.StateOf(statusIn(mediaTypeOf(response.Header), body)), nil
	default:
		return got, routing.Live, nil
	}
}

// maxObject limits a cell's answer to a read of one object. etcd stores 1.5 MiB by default, and JSON is a few times larger than protobuf.
const maxObject = 32 << 20

// statusIn returns the rebalance label of an object, or of the one in a Table.
func statusIn(mediaType string, body []byte) string {
	type metadata struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if mediaType == splice.ProtobufContentType {
		return protoLabel(body, names.RebalanceStatusLabel)
	}
	var object struct {
		metadata
		Rows []struct {
			Object metadata `json:"object"`
		} `json:"rows"`
	}
	if mediaType == "application/yaml" {
		if converted, err := yaml.YAMLToJSON(body); err == nil {
			body = converted
		}
	}
	if utiljson.Unmarshal(body, &object) != nil {
		return ""
	}
	for _, row := range object.Rows {
		return row.Object.Metadata.Labels[names.RebalanceStatusLabel]
	}
	return object.Metadata.Labels[names.RebalanceStatusLabel]
}

// protoLabel returns the value of a label.
func protoLabel(body []byte, name string) string {
	envelope, err := objbytes.OpenEnvelope(body)
	if err != nil {
		return ""
	}
	var metadata objbytes.Metadata
	if metadata.MergeProtobuf(envelope.Raw.Of(body)) != nil {
		return ""
	}
	return metadata.Labels.Get(name)
}
