package gateway

import (
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// withReadableContentType refuses requests whose Content-Type cannot be parsed. An API server takes the type of a patch from what comes before the
// first semicolon, whatever follows. Handlers of the gateway must not take an apply, which can create an object, for something else.
func withReadableContentType(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		contentType := r.Header.Get("Content-Type")
		info, found := request.RequestInfoFrom(r.Context())
		if contentType == "" || !found || !info.IsResourceRequest || info.Subresource == "proxy" {
			next.ServeHTTP(w, r)
			return
		}
		if _, _, err := mime.ParseMediaType(contentType); err != nil {
			forward.WriteError(w, r, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, info.Verb,
				schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, "the header Content-Type is malformed: "+err.Error(), 0, false))
			return
		}
		next.ServeHTTP(w, r)
	})
}
