package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// TestDeadline checks for HTTP/1.1 and HTTP/2 that a request is answered at its deadline, whatever it waits for, and that its connection
// then serves the next request.
func TestDeadline(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/body": // the client does not send it
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				forward.WriteError(w, r, err)
			}
		case "/context":
			<-r.Context().Done()
			forward.WriteError(w, r, r.Context().Err())
		}
	})
	bounded := withDeadline(handler, isLongRunning)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := request.WithRequestInfo(r.Context(), &request.RequestInfo{Verb: "create", IsResourceRequest: true, Path: r.URL.Path})
		if r.URL.Path != "/" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
		}
		bounded.ServeHTTP(w, r.WithContext(ctx))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, http2 := range []bool{false, true} {
		for _, path := range []string{"/body", "/context"} {
			t.Run(path, func(t *testing.T) {
				protocols := new(http.Protocols)
				protocols.SetHTTP1(!http2)
				protocols.SetHTTP2(http2)
				client := &http.Client{Transport: &http.Transport{
					Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}, //nolint:gosec // the server chooses
				}}
				defer client.CloseIdleConnections()
				slow, _ := io.Pipe()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, slow)
				if err != nil {
					t.Fatal(err)
				}
				if path == "/context" {
					r.Body = http.NoBody
				}
				expectStatus(t, client, r, http.StatusGatewayTimeout)
				if r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody); err != nil {
					t.Fatal(err)
				}
				expectStatus(t, client, r, http.StatusOK)
			})
		}
	}
}

func expectStatus(t *testing.T, client *http.Client, r *http.Request, want int) {
	t.Helper()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != want {
		t.Errorf("%s: got %s, want %d", r.URL.Path, response.Status, want)
	}
}

// TestPanic checks that a panic ends its own request only.
func TestPanic(t *testing.T) {
	faulty := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" {
			panic("a fault")
		}
	})
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	handler := filters.WithPanicRecovery(genericfilters.WithRequestInfo(withDeadline(faulty, isLongRunning), infos), infos)
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	response, err := server.Client().Get(server.URL + "/api/v1/pods")
	if err == nil {
		_ = response.Body.Close()
	}
	if err == nil && response.StatusCode != http.StatusInternalServerError {
		t.Errorf("a request that panics: %s, want 500 or no answer", response.Status)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/nodes", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	expectStatus(t, server.Client(), r, http.StatusOK)
}
