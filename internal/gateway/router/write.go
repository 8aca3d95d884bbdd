package router

import (
	"bytes"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// change sends a write to the object named in the path. The error can be written after asStatus.
func (rt *Router) change(r *http.Request, c *call, body []byte) (*http.Response, error) {
	request := rt.request(c, routing.Change, c.Name, "")
	request.Blind = c.Subresource == "scale" || c.Verb == "create"
	request.Versioned = namesVersion(c, mediaTypeOf(r.Header), body)
	return rt.write(r, c, request, c.Name, func(cell slots.Index, pinned string) ([]byte, error) {
		content, err := rt.rewriteBody(bodyKind(c), r.Header.Get("Content-Type"), body, func(version string) (string, error) {
			return rt.versionIn(r.Context(), c, cell, version)
		})
		if err != nil || pinned == "" {
			return content, err
		}
		return pin(c, mediaTypeOf(r.Header), content, pinned)
	})
}

// createIn sends a create of the object in the body. The error can be written after asStatus.
func (rt *Router) createIn(r *http.Request, c *call, identity identity, body []byte) (*http.Response, error) {
	request := rt.request(c, routing.Create, identity.name, identity.slot)
	request.Nameless = identity.name == ""
	return rt.write(r, c, request, identity.name, func(cell slots.Index, _ string) ([]byte, error) {
		return rt.rewriteBody(bodyKind(c), r.Header.Get("Content-Type"), body, func(version string) (string, error) {
			if v, err := position.ParseVersion(version); err == nil {
				return strconv.FormatUint(v.Revision, 10), nil // the API server refuses any
			}
			return rt.versionIn(r.Context(), c, cell, version)
		})
	})
}

// write sends a request until the cell that owns the object, or the hub, has decided about it. content returns the body for a cell, pinned to a
// resourceVersion unless that is "".
func (rt *Router) write(r *http.Request, c *call, request routing.Request, name string, content func(cell slots.Index, pinned string) ([]byte, error)) (*http.Response, error) {
	rt.beginWrite(c, name)
	request.DryRun = surelyDry(r, c)
	var response *http.Response
	var to slots.Index
	var epoch int64
	var sent *slots.Map
	var view *topology.View
	_, err := rt.drive(r.Context(), c, request, name, exchange{
		send: func(cell slots.Index, write routing.Write) (routing.Result, error) {
			body, err := content(cell, write.Pinned)
			if err != nil {
				return routing.Done, err
			}
			to, epoch, sent, view = cell, write.Epoch, nil, c.view
			if !c.isHub(cell) {
				if outdated, err := rt.mayWrite(r, c, write.Epoch); outdated || err != nil {
					return routing.StaleEpoch, err
				}
				sent = c.topologyOf(write.Epoch)
			}
			c.write = &write
			defer func() { c.write = nil }()
			if response, err = rt.durably(r, c, &request, name, cell, body); err != nil {
				return routing.Done, err
			}
			return resultOf(response), nil
		},
		uid: func() string { return uidIn(r.Context(), response) },
		discard: func() {
			if response != nil {
				response.Body.Close()
				response = nil
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if c.view != view {
		// The object was found by a later view. That is the one by which it will last; the cell, and the version in the answer, are of the one
		// by which it was created.
		sent, c.view = c.view.Map, view
	}
	if err := rt.mayAcknowledge(r, c, sent, response); err != nil {
		response.Body.Close()
		return nil, err
	}
	annotate(r.Context(), c.view.Name(to), strconv.FormatInt(epoch, 10))
	c.wrote = to
	return response, nil
}

// resultOf classifies the answer to a write. The answer can be read again.
func resultOf(response *http.Response) routing.Result {
	switch response.StatusCode {
	case http.StatusForbidden:
		switch refusalIn(response) {
		case fence.StaleEpoch:
			return routing.StaleEpoch
		case fence.Frozen:
			return routing.ObjectFrozen
		case fence.Absent:
			return routing.ObjectAbsent
		}
	case http.StatusConflict:
		return routing.Conflict
	case http.StatusNotFound:
		return routing.NotFound
	case http.StatusCreated:
		return routing.Created
	}
	return routing.Done
}

// refusalIn returns which refusal of the fence an answer is, "" if it is none. The answer can be read again.
func refusalIn(response *http.Response) string {
	if status := peekStatus(response); status != nil {
		return fence.RefusalIn(*status)
	}
	return ""
}

// peekStatus returns the Status in an answer, nil if it is something else. The answer can be read again.
func peekStatus(response *http.Response) *metav1.Status {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	if err != nil {
		return nil
	}
	return readStatus(body)
}
