package cell_test

import (
	"bytes"
	"io"
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
	var clusters, works atomic.Bool
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }, Transport: transport, FlushInterval: -1,
		// The engine has the clusters when it has the whole answer, which is sent after this.
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, "/clusters") || watches(r.Request) {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			clusters.Store(true)
			return err
		},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/works") && !watches(r) {
			works.Store(true)
			if !clusters.Load() {
				t.Error("Works are read before the clusters are cached")
			}
		}
		proxy.ServeHTTP(w, r)
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

func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }
