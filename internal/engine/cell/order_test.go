package cell_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/testenv"
)

// Works are read after clusters, which say who applies them: a Work that an agent applies must never look like ours.
func TestClustersBeforeWorks(t *testing.T) {
	config := testenv.SharedAPIServer(t).RESTConfig()
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }, Transport: transport, FlushInterval: -1}
	var clusters, works atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watches := r.URL.Query().Get("watch") != ""
		if strings.HasSuffix(r.URL.Path, "/works") && !watches {
			works.Store(true)
			if !clusters.Load() {
				t.Error("Works are read before the clusters are cached")
			}
		}
		proxy.ServeHTTP(w, r)
		if strings.HasSuffix(r.URL.Path, "/clusters") && !watches {
			clusters.Store(true)
		}
	}))
	t.Cleanup(front.Close) // after the watches have ended
	state, err := cell.New(&rest.Config{Host: front.URL}, cell.Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !works.Load() {
		t.Error("Works were not read")
	}
}
