package protection

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// noVersion is a resourceVersion that no object has: it is that of an empty store. An API server refuses to change an object that is not in this
// version, and ignores the version where there is no object: it creates one, or finds none.
const noVersion = "1"

// absentKey marks requests whose object did not exist when they were checked.
type absentKey struct{}

func withAbsent(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), absentKey{}, true))
}

func isAbsent(r *http.Request) bool { return r.Context().Value(absentKey{}) != nil }

// serveAbsent sends a request whose object did not exist on the condition that it still does not.
func serveAbsent(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, next http.Handler) {
	body, err := forward.ReadBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	c := &change{Request: r, info: info, body: body}
	if err := c.pinTo(objbytes.Pin{ResourceVersion: noVersion, PatchCheck: objbytes.TestVersion, Replace: true}); err != nil {
		forward.WriteError(w, r, err)
		return
	}
	next.ServeHTTP(w, c.send())
}
