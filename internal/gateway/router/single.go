package router

import (
	"net/http"
	"strconv"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// single serves a request for one object.
func (rt *Router) single(w http.ResponseWriter, r *http.Request, c *call) {
	switch {
	case isRead(r, c):
		rt.read(w, r, c)
	case hasBody(r, c):
		rt.change(w, r, c)
	default:
		cell, err := rt.locate(r.Context(), c)
		if err != nil {
			forward.WriteError(w, r, err)
			return
		}
		rt.toCell(w, r, c, cell)
	}
}

// change serves a request that changes one object.
func (rt *Router) change(w http.ResponseWriter, r *http.Request, c *call) {
	body, err := readBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	response, err := rt.write(r, c, &namedWrite{rt: rt, r: r, c: c, body: body})
	if err != nil {
		forward.WriteError(w, r, asStatus(err, c))
		return
	}
	defer response.Body.Close()
	forward.Answer(w, response)
}

// isRead reports whether a request reads an object, and not what comes as a stream.
func isRead(r *http.Request, c *call) bool {
	return c.Verb == "get" && r.Method == http.MethodGet && r.Header.Get("Upgrade") == "" && (c.Subresource == "" || c.Subresource == "status" || c.Subresource == "scale")
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
	case c.Verb == "delete":
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
	rt.forwarder.To(w, r, upstream, c.scope())
}
