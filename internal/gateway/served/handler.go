package served

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/limits"
)

// refusedAnnotation tells in the audit event that a request was refused because the resource or verb is not served to the user.
const refusedAnnotation = "cellplane.io/not-served"

// Handler refuses the requests of users for what they are not served.
type Handler struct {
	// Next serves the other requests.
	Next http.Handler
	// APIs are the limits.
	APIs *APIs
	// IsLongRunning reports whether a request may run for long. It ends when it is no longer served.
	IsLongRunning func(*http.Request, *request.RequestInfo) bool
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	info, foundInfo := request.RequestInfoFrom(ctx)
	u, foundUser := request.UserFrom(ctx)
	if !foundInfo || !foundUser || unlimited(u) || !isAPI(info) {
		h.Next.ServeHTTP(w, r)
		return
	}
	groups := u.GetGroups()
	if info.IsResourceRequest && h.IsLongRunning(r, info) {
		// Before the limits are read, so that none is missed that comes into force now.
		streamed, done := h.APIs.streams.add(ctx, groups, info)
		defer done()
		ctx = streamed
	}
	current := h.APIs.limits()
	if current == nil {
		forward.WriteError(w, r, apierrors.NewServiceUnavailable("the gateway has not loaded the ServedAPIs yet; try again in a moment"))
		return
	}
	if limit := current.For(groups); limit != nil {
		if info.IsResourceRequest && !limit.allowsRequest(info) {
			refuse(w, r, limit, info)
			return
		}
		ctx = context.WithValue(ctx, limitKey{}, limit)
	}
	if ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	h.Next.ServeHTTP(w, r)
}

// unlimited reports whether the API of a user is never limited: administrators, components and the stock controllers.
func unlimited(u user.Info) bool {
	return limits.OwnerOf(u).Exempt || names.IsComponent(u.GetName())
}

// isAPI reports whether a request is about resources: for one, or for discovery or OpenAPI.
func isAPI(info *request.RequestInfo) bool {
	if info.IsResourceRequest {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(info.Path, "/"), "/")
	return first == "api" || first == "apis" || first == "openapi"
}

func (l *Limit) allowsRequest(info *request.RequestInfo) bool {
	return l.Allows(resourceOf(info), info.Subresource, info.Verb)
}

func resourceOf(info *request.RequestInfo) schema.GroupResource {
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
}

// refuse answers as an API server does that does not have the resource, or not with this verb.
func refuse(w http.ResponseWriter, r *http.Request, limit *Limit, info *request.RequestInfo) {
	refused.Inc()
	audit.AddAuditAnnotation(r.Context(), refusedAnnotation, "true")
	if limit.Serves(resourceOf(info), info.Subresource) {
		forward.WriteError(w, r, apierrors.NewMethodNotSupported(resourceOf(info), info.Verb))
		return
	}
	forward.WriteError(w, r, errUnknown)
}

// errUnknown is what API servers answer if they do not have a resource.
var errUnknown = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
	Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
}}

type limitKey struct{}

// From returns the limit of the user of a request, nil if there is none.
func From(ctx context.Context) *Limit {
	limit, _ := ctx.Value(limitKey{}).(*Limit)
	return limit
}
