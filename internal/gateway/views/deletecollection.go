package views

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// deleteCollection is refused: it would delete what a list shows, but a list cannot be shown, authorized in every member and deleted at
// one time. Clients that find it missing delete one by one.
func (v *Views) deleteCollection(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	forward.WriteError(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, "deletecollection"))
}
