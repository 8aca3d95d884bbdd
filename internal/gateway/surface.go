package gateway

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/router"
)

// federationPrefix is the path under which templates alone are shown.
const federationPrefix = "/federation"

// withSurface reads which surface a request is for and takes the prefix off its path, before anybody resolves it. Paths that could mean
// two things to two readers are refused.
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
		// What is authorized and what is forwarded must be the same: the path as it has been read, in its plain encoding.
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
