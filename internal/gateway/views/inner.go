package views

import (
	"bytes"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// answer holds what a handler answers to a request that we make ourselves, in the name of the caller.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// inner makes a request of the caller's of r, for something else.
func inner(r *http.Request, info *request.RequestInfo, method, accept string, query url.Values) (*answer, *http.Request) {
	made := (&http.Request{
		Method: method, URL: &url.URL{Path: objectPath(info), RawQuery: query.Encode()}, Header: http.Header{"Accept": {accept}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, RemoteAddr: r.RemoteAddr, Host: r.Host,
	}).WithContext(request.WithRequestInfo(r.Context(), info))
	return &answer{header: http.Header{}}, made
}
