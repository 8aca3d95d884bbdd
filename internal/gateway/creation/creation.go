// Package creation requires the right to create from requests that create by another verb.
//
// A server-side apply, and for some kinds a PUT, creates an object that does not exist. API servers then ask their authorizer for `create` as
// well. Cells accept whatever a gateway has authorized, so the gateway has to ask. Only for users who may not create, it looks whether the
// object exists. An object that is deleted between the look and the write may be created again, by a user who could have changed it.
package creation

import (
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/gateway/served"
)

// Handler refuses requests that would create an object if their user may not.
type Handler struct {
	// Next serves requests, also those that look whether an object exists.
	Next http.Handler
	// Authorizer knows who may create.
	Authorizer authorizer.Authorizer
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if info, ok := request.RequestInfoFrom(r.Context()); ok && mayCreate(r, info) {
		if err := h.check(r, info); err != nil {
			forward.WriteError(w, r, err)
			return
		}
	}
	h.Next.ServeHTTP(w, r)
}

// check returns an error if a request must not be served.
func (h *Handler) check(r *http.Request, info *request.RequestInfo) error {
	refusal := h.refusal(r, info)
	if refusal == nil {
		return nil
	}
	err := inner.Do(h.Next, look(r, info)).Err()
	switch {
	case apierrors.IsForbidden(err) && apierrors.IsForbidden(refusal):
		return nil // by the hub, which authorizes creations itself
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err) && info.Verb == "patch":
		return refusal
	default:
		return err // a PUT that may not create finds nothing
	}
}

// mayCreate reports whether a request creates an object that does not exist, though its verb is another one.
func mayCreate(r *http.Request, info *request.RequestInfo) bool {
	if !info.IsResourceRequest || info.Subresource != "" {
		return false
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return info.Verb == "update" || info.Verb == "patch" && (media == string(types.ApplyPatchType) || media == string(types.ApplyCBORPatchType))
}

// refusal returns why the user of a request may not create the object, nil if it may.
func (h *Handler) refusal(r *http.Request, info *request.RequestInfo) error {
	create := *info
	create.Verb = "create"
	return served.Authorize(r.Context(), h.Authorizer, &create)
}

// look returns a request for the metadata of the object.
func look(r *http.Request, info *request.RequestInfo) *http.Request {
	get := *info
	get.Verb = "get"
	read := r.Clone(request.WithRequestInfo(r.Context(), &get))
	read.Method, read.Body, read.ContentLength = http.MethodGet, http.NoBody, 0
	read.URL.RawQuery = ""
	read.Header = http.Header{"Accept": {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}}
	return read
}
