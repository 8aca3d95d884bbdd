package console

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RefuseOtherSites refuses what the page of another site asks a browser for. The browser adds the client certificate of its user to such a
// request too, so that page would act as the user: send an object without a content type, or open a WebSocket to a container.
//
// Browsers say where a request comes from and do not let pages change it. Other clients do not send the header, and their requests pass.
// refuse answers the request with an error.
func RefuseOtherSites(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "cross-site", "same-site":
			refuse(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errOtherSite))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// errOtherSite is the reason of a refusal.
var errOtherSite = errors.New("the page of another site has asked for this; only the gateway's own console may use it from a browser")
