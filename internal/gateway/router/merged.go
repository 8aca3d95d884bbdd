package router

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/placement"
)

// Merged serves lists and watches of resources that are distributed over servers independently of their names. The cells of its Router are
// these servers.
type Merged struct{ *Router }

// NewMerged completes a Merged.
func NewMerged(r Router) Merged {
	rt := New(r)
	rt.confirmations = nil // nothing moves between such servers
	rt.streams = nil       // they authorize the user themselves
	return Merged{rt}
}

// ServeHTTP serves a list or a watch.
func (m Merged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found {
		forward.WriteError(w, r, apierrors.NewInternalError(errNoRequestInfo))
		return
	}
	c := &call{RequestInfo: info, view: m.Topology.View(), placement: placement.Anywhere}
	switch {
	case c.view == nil:
		forward.WriteError(w, r, errNoCells)
	case info.Verb == "list":
		m.list(w, r, c)
	case info.Verb == "watch":
		m.watch(w, r, c)
	default:
		forward.WriteError(w, r, apierrors.NewMethodNotSupported(c.groupResource(), strings.ToLower(r.Method)))
	}
}
