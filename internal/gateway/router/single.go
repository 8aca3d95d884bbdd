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
	case hasBody(c):
		rt.serveChange(w, r, c)
	default:
		cell, err := rt.locate(r.Context(), c)
		if err != nil {
			forward.WriteError(w, r, err)
			return
		}
		rt.toCell(w, r, c, cell)
	}
}

// serveChange serves a request that changes one object.
func (rt *Router) serveChange(w http.ResponseWriter, r *http.Request, c *call) {
	body, err := forward.ReadBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	response, err := rt.change(uncompressed(r), c, body)
	rt.answerWrite(w, r, c, c.Name, response, err)
}

// isRead reports whether a request reads an object, other than as a stream.
func isRead(r *http.Request, c *call) bool {
	return c.Verb == "get" && r.Method == http.MethodGet && r.Header.Get("Upgrade") == "" && (c.Subresource == "" || c.Subresource == "status" || c.Subresource == "scale")
}

// hasBody reports whether the body of a request is read before it is forwarded. Streams are forwarded as they come. Their subresources
// decide, and not the header Upgrade: a write must not pass by the writer lease because of a header.
func hasBody(c *call) bool {
	switch c.Subresource {
	case "proxy", "exec", "attach", "portforward":
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

// toCell forwards a request unchanged.
func (rt *Router) toCell(w http.ResponseWriter, r *http.Request, c *call, cell slots.Index) {
	annotate(r.Context(), c.view.Name(cell), strconv.FormatInt(c.view.Epoch(), 10))
	upstream := rt.upstream(c, cell)
	if upstream == nil {
		forward.WriteError(w, r, forward.Unreachable(c.view.Name(cell), nil))
		return
	}
	rt.forwarder.To(w, r, upstream, c.scope(cell))
}
