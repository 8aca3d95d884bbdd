package documents

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/pki"
)

// changing is a hub whose document changes several times after its index was read.
func changing(t *testing.T, times int64) *fleet.Upstream {
	t.Helper()
	var reads atomic.Int64
	return hubOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case indexPath:
			_, _ = fmt.Fprintf(w, `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=%d"}}}`, reads.Add(1))
		case "/openapi/v3/api/v1":
			if reads.Load() <= times { // the hash is outdated
				http.Redirect(w, r, "/openapi/v3/api/v1?hash=next", http.StatusMovedPermanently)
				return
			}
			_, _ = fmt.Fprint(w, `{"openapi":"3.0.0"}`)
		default:
			_, _ = fmt.Fprint(w, "{}")
		}
	}))
}

// hubOf returns a connection to a hub that is simulated by a handler.
func hubOf(t *testing.T, handler http.Handler) *fleet.Upstream {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	authority, err := pki.EnsureCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Ensure(dir, "gateway", pki.Leaf{CommonName: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := fleet.Endpoint{Server: server.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	for file, into := range map[string]*[]byte{pair.CertFile: &endpoint.Cert, pair.KeyFile: &endpoint.Key} {
		if *into, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	hub, err := fleet.NewUpstream("hub", endpoint, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Close)
	return hub
}

// TestDocumentsThatChange checks that the index is read again if a document changes after the index was read.
func TestDocumentsThatChange(t *testing.T) {
	for _, test := range []struct {
		times int64
		kept  bool
	}{{0, true}, {3, true}, {1000, false}} {
		t.Run(fmt.Sprintf("%d times", test.times), func(t *testing.T) {
			d := New(changing(t, test.times), t.TempDir(), nil)
			err := d.refreshAll(t.Context())
			if test.kept != (err == nil) || !test.kept && !errors.Is(err, errOutdated) {
				t.Fatalf("keeping the documents: %v", err)
			}
			body, err := d.read("/openapi/v3/api/v1", jsonForm)
			if test.kept && (err != nil || string(body) != `{"openapi":"3.0.0"}`) {
				t.Errorf("%q is kept, %v", body, err)
			}
		})
	}
}
