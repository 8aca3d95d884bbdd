package gateway

import (
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// withReadableContentType refuses requests whose Content-Type cannot be parsed. An API server takes the type of a patch from what comes before the
// first semicolon, whatever follows. Handlers of the gateway must not take an apply, which can create an object, for something else. It also refuses
// YAML that aliases make too large.
func withReadableContentType(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		contentType := r.Header.Get("Content-Type")
		info, found := request.RequestInfoFrom(r.Context())
		if contentType == "" || !found || !info.IsResourceRequest || info.Subresource == "proxy" {
			next.ServeHTTP(w, r)
			return
		}
		mediaType, _, err := mime.ParseMediaType(contentType)
		if err != nil {
			forward.WriteError(w, r, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, info.Verb,
				schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, "the header Content-Type is malformed: "+err.Error(), 0, false))
			return
		}
		if mediaType == runtime.ContentTypeYAML || mediaType == string(types.ApplyYAMLPatchType) {
			if err := checkYAML(r); err != nil {
				forward.WriteError(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// checkYAML returns an error if neither gateways nor API servers should convert the body of a request to JSON. The error can be written as it is.
func checkYAML(r *http.Request) error {
	body, err := forward.ReadBody(r)
	if err != nil {
		return err
	}
	if err := objbytes.CheckAliases(body); err != nil {
		return apierrors.NewBadRequest("the request body: " + err.Error())
	}
	return nil
}
