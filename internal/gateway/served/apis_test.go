package served_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/gateway/served"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestHubWithoutTheKind checks that a hub that does not have the kind limits nobody, and that one that does not answer leaves it open.
func TestHubWithoutTheKind(t *testing.T) {
	var code, asked atomic.Int64
	code.Store(http.StatusServiceUnavailable)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", int(code.Load()))
		asked.Add(1)
	}))
	defer hub.Close()
	client, err := topology.RESTClient(&rest.Config{Host: hub.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	apis, err := served.NewAPIs(client, dir)
	if err != nil {
		t.Fatal(err)
	}
	go apis.Run(t.Context())
	testenv.Eventually(t, "the hub is asked", func(context.Context) (bool, error) { return asked.Load() > 1, nil })
	if apis.Known() {
		t.Error("the ServedAPIs are known while the hub does not answer")
	}
	code.Store(http.StatusNotFound)
	testenv.Eventually(t, "the ServedAPIs are known", func(context.Context) (bool, error) { return apis.Known(), nil })
	testenv.Eventually(t, "they are kept", func(context.Context) (bool, error) {
		kept, err := os.ReadFile(filepath.Join(dir, "served.json"))
		return strings.TrimSpace(string(kept)) == "[]", err
	})
}
