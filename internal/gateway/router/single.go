package router

import (
	"context"
	"net/http"
	"strconv"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// single serves a request for one object.
func (rt *Router) single(w http.ResponseWriter, r *http.Request, c *call) {
	cell, err := rt.locate(r.Context(), c)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	if !hasBody(r, c) {
		rt.toCell(w, r, c, cell)
		return
	}
	body, err := readBody(r)
	if err == nil {
		body, err = rt.rewriteBody(bodyKind(c), r.Header.Get("Content-Type"), body, c.view, cell)
	}
	if err != nil {
		forward.WriteError(w, r, asStatus(err, c))
		return
	}
	rt.send(w, r, c, cell, body)
}

// locate returns the cell of an object.
func (rt *Router) locate(ctx context.Context, c *call) (slots.Index, error) {
	route := c.view.Locate(slots.Of(c.Namespace, c.Name))
	if c.placement == kinds.ByName && !route.Moving() {
		return route.New, nil
	}
	return rt.find(ctx, c)
}

// hasBody reports whether a request has a body to look at. What is a stream is passed on as it comes.
func hasBody(r *http.Request, c *call) bool {
	if r.Header.Get("Upgrade") != "" || c.Subresource == "proxy" {
		return false
	}
	switch c.Verb {
	case "create", "update", "patch", "delete":
		return true
	default:
		return false
	}
}

func bodyKind(c *call) splice.Body {
	switch {
	case c.Verb == "delete" || c.Verb == "deletecollection":
		return splice.DeleteOptionsBody
	case c.Subresource == "eviction":
		return splice.EvictionBody
	default:
		return splice.ObjectBody
	}
}

// toCell passes a request on as it is.
func (rt *Router) toCell(w http.ResponseWriter, r *http.Request, c *call, cell slots.Index) {
	annotate(r.Context(), c.view.Name(cell), strconv.FormatInt(c.view.Epoch(), 10))
	upstream := c.view.Upstreams[cell]
	if upstream == nil {
		forward.WriteError(w, r, forward.Unreachable(c.view.Name(cell), nil))
		return
	}
	rt.forwarder.To(w, r, upstream, forward.ToCell(c.view.Epoch()))
}
