package cell_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/testenv"
)

// newProxy returns a proxy of an API server.
func newProxy(t *testing.T) *httputil.ReverseProxy {
	t.Helper()
	config := testenv.SharedAPIServer(t).RESTConfig()
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }, Transport: transport, FlushInterval: -1}
}

// startBehind starts a cell that is reached through a handler.
func startBehind(t *testing.T, handler http.HandlerFunc) *cell.Cell {
	t.Helper()
	front := httptest.NewServer(handler)
	t.Cleanup(front.Close) // after the watches have ended
	state, err := cell.New(&rest.Config{Host: front.URL}, cell.Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return state
}
