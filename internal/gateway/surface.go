package gateway

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/router"
)

// federationPrefix is the path prefix of the surface that shows templates only.
const federationPrefix = "/federation"

// withSurface finds the surface of a request and removes its prefix from the path, before the path is resolved. It refuses paths that
// two parsers could read differently.
func withSurface(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !plainPath(r.URL.Path) {
			forward.WriteError(w, r, apierrors.NewBadRequest("the path has empty or relative segments"))
			return
		}
		path, federation := strings.CutPrefix(r.URL.Path, federationPrefix)
		if federation && (path == "" || path[0] == '/') {
			clone := *r
			url := *r.URL
			url.Path = path
			if path == "" {
				url.Path = "/"
			}
			clone.URL = &url
			clone.RequestURI = ""
			r = clone.WithContext(router.WithFederationSurface(r.Context()))
		}
		// The path that is authorized must be the one that is forwarded: the decoded one.
		r.URL.RawPath = ""
		next.ServeHTTP(w, r)
	})
}

// plainPath reports whether a path has no empty, "." or ".." segments.
func plainPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	rest := path[1:]
	for rest != "" {
		segment, tail, more := strings.Cut(rest, "/")
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
		if !more {
			return true
		}
		rest = tail
	}
	return true
}
