package console

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RefuseOtherSites refuses what the page of another site asks a browser for. The browser adds the client certificate of its user to such a
// request too, so that page would act as the user: send an object without a content type, or open a WebSocket, whose messages it may read.
// It also refuses the scripts of service workers, which would stay between the browser and the gateway: the console has none.
//
// Browsers say where a request comes from and do not let pages change it. Not all have Sec-Fetch-Site, or send it with the handshake of a
// WebSocket. All send Origin with a handshake, and with what is neither GET nor HEAD. Other clients send no Origin, or the address that they
// connect to, and their requests pass.
//
// The address is that of the Host header. A proxy that changes Host makes a WebSocket of the console look like one of another site; the
// gateway trusts no header in which a proxy reports the former one.
//
// refuse answers the request with an error.
func RefuseOtherSites(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case fromOtherSite(r):
			refuse(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errOtherSite))
		case r.Header.Get("Sec-Fetch-Dest") == "serviceworker" || r.Header.Get("Service-Worker") != "":
			refuse(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errServiceWorker))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// The reasons of refusals.
var (
	errOtherSite     = errors.New("the page of another site has asked for this; only the gateway's own console may use it from a browser")
	errServiceWorker = errors.New("the gateway serves no service workers")
)

// fromOtherSite reports whether the page of another site asks for a request.
func fromOtherSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
		return false
	case "cross-site", "same-site":
		return true
	}
	for _, origin := range r.Header["Origin"] {
		if !isOrigin(origin, r.Host) {
			return true
		}
	}
	return false
}

// isOrigin reports whether an origin is that of https at a host. A page without encryption is another site, even at the same host: whoever
// is on the network can write it.
func isOrigin(origin, host string) bool {
	const scheme, port = "https://", ":443"
	if len(origin) < len(scheme) || !strings.EqualFold(origin[:len(scheme)], scheme) {
		return false
	}
	return strings.EqualFold(strings.TrimSuffix(origin[len(scheme):], port), strings.TrimSuffix(host, port))
}
