package router

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/objbytes"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// answer is what a cell has answered, read to its end.
type answer struct {
	*http.Response
	body []byte
	cell slots.Index
}

// read serves a request that reads one object.
func (rt *Router) read(w http.ResponseWriter, r *http.Request, c *call) {
	var held hold
	defer held.end()
	request := uncompressed(r)
	for {
		got, err := rt.fetch(request, c)
		switch {
		case errors.Is(err, errStaleMap):
			err = held.newer(r.Context(), rt.Topology, c)
		case errors.Is(err, errWait):
			err = held.look(r.Context())
		case err == nil:
			annotate(r.Context(), c.view.Name(got.cell), strconv.FormatInt(c.view.Epoch(), 10))
			got.write(w, r)
			return
		}
		if err != nil {
			forward.WriteError(w, r, err)
			return
		}
	}
}

// uncompressed is a request whose answer is not compressed, so that it can be looked at.
func uncompressed(r *http.Request) *http.Request {
	clone := *r
	clone.Header = maps.Clone(r.Header)
	clone.Header.Del("Accept-Encoding")
	return &clone
}

// write passes the answer on.
func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	if len(a.body) < compressFrom || !acceptsGzip(r) {
		forward.AnswerHeader(w, a.Response)
		_, _ = w.Write(a.body) // a client that has gone needs no answer
		return
	}
	a.Header.Del("Content-Length")
	for key, values := range a.Header {
		w.Header()[key] = values
	}
	list := &listWriter{ResponseWriter: w, header: w.Header(), accepts: true}
	list.begin()
	if _, err := list.Write(a.body); err == nil {
		_ = list.close()
	}
}

// fetch reads an object where it is. It returns errStaleMap if the map at hand does not tell.
func (rt *Router) fetch(r *http.Request, c *call) (*answer, error) {
	route := c.view.Locate(rt.slotOf(c, c.Name, ""))
	switch {
	case c.placement != placement.ByName:
		return rt.fetchFound(r, c)
	case route.Moving():
		return rt.fetchOn(r, c, route)
	}
	got, err := rt.fetchFrom(r, c, route.New)
	if err != nil {
		return nil, err
	}
	if got.state == absent {
		err = rt.absentIn(r.Context(), c, got)
	}
	return got.answer, err
}

// absentIn makes sure that an object is not in a cell by a map in force. What a move has left behind shows that the map is not.
func (rt *Router) absentIn(ctx context.Context, c *call, got seenAnswer) error {
	if got.StatusCode == http.StatusOK {
		return errStaleMap
	}
	return rt.confirm(ctx, c, got.cell)
}

// fetchOn reads an object on its way: in the new cell, then in the old one, and if it is in neither once more in the new one. A copy
// that is not active yet gives way to the original for as long as that is there.
func (rt *Router) fetchOn(r *http.Request, c *call, route slots.Route) (*answer, error) {
	got, err := rt.fetchFrom(r, c, route.New)
	if err != nil || got.state == active {
		return got.answer, err
	}
	if got, err = rt.fetchFrom(r, c, route.Old); err != nil || got.state != absent {
		return got.answer, err
	}
	if got, err = rt.fetchFrom(r, c, route.New); err == nil && got.state == absent {
		err = rt.absentIn(r.Context(), c, got)
	}
	return got.answer, err
}

// fetchFound reads an object whose name does not tell where it is.
func (rt *Router) fetchFound(r *http.Request, c *call) (*answer, error) {
	seen, err := rt.find(r.Context(), c)
	if err != nil {
		return nil, err
	}
	got, err := rt.fetchFrom(r, c, seen.cell)
	switch {
	case err != nil || got.state != absent:
	case seen.state != absent:
		err = errWait // it has gone meanwhile, perhaps to another cell
	default:
		err = rt.confirm(r.Context(), c, got.cell)
	}
	return got.answer, err
}

// seenAnswer is an answer with what it says about the object's move.
type seenAnswer struct {
	*answer
	state state
}

// fetchFrom reads an object from a cell.
func (rt *Router) fetchFrom(r *http.Request, c *call, cell slots.Index) (seenAnswer, error) {
	response, err := rt.insist(r, c, cell, nil)
	if err != nil {
		return seenAnswer{}, err
	}
	defer response.Body.Close()
	body, err := readAnswer(response, maxObject)
	if err != nil {
		return seenAnswer{}, forward.Unreachable(c.view.Name(cell), err)
	}
	got := seenAnswer{answer: &answer{Response: response, body: body, cell: cell}, state: active}
	switch {
	case response.StatusCode == http.StatusNotFound:
		got.state = absent
	case response.StatusCode != http.StatusOK:
		// What else there is to say about the object the cell has said.
	case c.Subresource == "scale" || r.URL.Query().Get("includeObject") == "None":
		if !c.mayMove(rt.slotOf(c, c.Name, "")) {
			break
		}
		seen, err := rt.look(r.Context(), c, cell, c.Name) // the answer does not have the labels
		if err != nil {
			return seenAnswer{}, err
		}
		got.state = seen.state
	case bytes.Contains(body, []byte(names.RebalanceStatusLabel)):
		got.state = stateOf(statusIn(mediaTypeOf(response.Header), body))
	}
	return got, nil
}

// maxObject bounds what a cell may answer a read of one object with. etcd takes 1.5 MiB unless told otherwise, and JSON is a few times
// larger than protobuf.
const maxObject = 32 << 20

// mayMove reports whether objects of a slot are moving, or about to.
func (c *call) mayMove(slot slots.Slot) bool {
	return c.view.Locate(slot).Moving() || !c.view.Settled(slot)
}

// statusIn returns how far the move of an object is, or of the one in a Table.
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
