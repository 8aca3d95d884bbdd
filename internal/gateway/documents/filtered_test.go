package documents

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// describing serves OpenAPI documents as API servers do, and counts those that were read completely.
func describing(t *testing.T) (service *handler3.OpenAPIService, read *atomic.Int64, hub http.Handler) {
	t.Helper()
	service, read = handler3.NewOpenAPIService(), new(atomic.Int64)
	mux := http.NewServeMux()
	mux.HandleFunc(indexPath, service.HandleDiscovery)
	mux.HandleFunc(indexPath+"/", func(w http.ResponseWriter, r *http.Request) {
		service.HandleGroupVersion(&counting{w, read}, r)
	})
	return service, read, mux
}

type counting struct {
	http.ResponseWriter
	whole *atomic.Int64
}

// WriteHeader implements http.ResponseWriter.
func (c *counting) WriteHeader(status int) {
	if status == http.StatusOK {
		c.whole.Add(1)
	}
	c.ResponseWriter.WriteHeader(status)
}

func describe(t *testing.T, service *handler3.OpenAPIService, resources ...string) {
	t.Helper()
	var document spec3.OpenAPI
	var paths []string
	for _, resource := range resources {
		paths = append(paths, `"/apis/apps/v1/`+resource+`":{}`)
	}
	if err := document.UnmarshalJSON([]byte(`{"openapi":"3.0.0","info":{"title":"a hub","version":"1"},"paths":{` + strings.Join(paths, ",") + `}}`)); err != nil {
		t.Fatal(err)
	}
	service.UpdateGroupVersion("apis/apps/v1", &document)
}

func ask(d *Documents, path string, header http.Header) *http.Response {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Header = header.Clone()
	recorder := httptest.NewRecorder()
	d.ServeHTTP(recorder, r)
	return recorder.Result()
}

// TestFilteredOnce checks that a document is filtered once per change, that one with nothing to remove is forwarded with its caching
// headers, and that its hash depends on what was removed.
func TestFilteredOnce(t *testing.T) {
	service, read, handler := describing(t)
	describe(t, service, "deployments", "statefulsets")
	var current atomic.Pointer[kinds.Announced]
	d := New(hubOf(t, handler), "", func(context.Context) *kinds.Announced { return current.Load() })
	if response := ask(d, indexPath, nil); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("before the API is known: %s", response.Status)
	}

	current.Store(kinds.NewAnnounced(deployments))
	withheld := address(t, d)
	etag := checkPaths(t, d, withheld, "deployments")
	if got := read.Load(); got != 2 { // by the client's request, and to filter it
		t.Errorf("the document was read %d times for one client", got)
	}
	checkPaths(t, d, withheld, "deployments")
	checkUnchanged(t, d, withheld, etag)
	if got := read.Load(); got != 2 {
		t.Errorf("the document was read %d times, though it has not changed", got)
	}

	current.Store(kinds.NewAnnounced(deployments, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}))
	whole := address(t, d)
	if moved := ask(d, withheld, nil); moved.StatusCode != http.StatusMovedPermanently || moved.Header.Get("Location") != whole || whole == withheld {
		t.Errorf("the address of the filtered document redirects to %q, %s, want %s", moved.Header.Get("Location"), moved.Status, whole)
	}
	before := read.Load()
	etag = checkPaths(t, d, whole, "deployments", "statefulsets")
	checkPaths(t, d, whole, "deployments", "statefulsets")
	checkUnchanged(t, d, whole, etag)
	if got := read.Load() - before; got != 3 { // by two clients, and to filter it once
		t.Errorf("the document was read %d times for two clients", got)
	}
	if response := ask(d, whole, nil); !strings.Contains(response.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("the caching headers are missing: %v", response.Header)
	}

	describe(t, service, "deployments", "statefulsets", "daemonsets")
	checkPaths(t, d, indexPath+"/apis/apps/v1", "deployments", "statefulsets")
	current.Store(kinds.NewAnnounced(configMaps))
	if response := ask(d, indexPath+"/apis/apps/v1", nil); response.StatusCode != http.StatusNotFound {
		t.Errorf("a document of which nothing is announced: %s", response.Status)
	}
}

// TestFilteredForSeveral checks that users who are shown different parts of a document do not make the gateway filter it again and again.
func TestFilteredForSeveral(t *testing.T) {
	service, read, handler := describing(t)
	describe(t, service, "deployments", "statefulsets")
	var current atomic.Pointer[kinds.Announced]
	d := New(hubOf(t, handler), "", func(context.Context) *kinds.Announced { return current.Load() })
	const path = indexPath + "/apis/apps/v1"
	for round := range 3 {
		for _, resource := range []string{"deployments", "statefulsets"} {
			current.Store(kinds.NewAnnounced(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}))
			checkPaths(t, d, path, resource)
		}
		if got := read.Load(); got != 4 { // by the first requests of both, and to filter it for both
			t.Fatalf("after round %d the document was read %d times", round, got)
		}
	}
}

// address returns the only one in the index.
func address(t *testing.T, d *Documents) string {
	t.Helper()
	var index indexDocument
	if err := json.NewDecoder(ask(d, indexPath, nil).Body).Decode(&index); err != nil {
		t.Fatal(err)
	}
	return index.Paths["apis/apps/v1"].ServerRelativeURL
}

// checkPaths checks that a document describes some resources and no others, and returns its ETag.
func checkPaths(t *testing.T, d *Documents, at string, resources ...string) (etag string) {
	t.Helper()
	response := ask(d, at, nil)
	var document struct{ Paths map[string]any }
	if err := json.NewDecoder(response.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	same := len(document.Paths) == len(resources)
	for _, resource := range resources {
		same = same && document.Paths["/apis/apps/v1/"+resource] != nil
	}
	if !same {
		t.Errorf("%s describes %v, want %v", at, document.Paths, resources)
	}
	return response.Header.Get("Etag")
}

func checkUnchanged(t *testing.T, d *Documents, at, etag string) {
	t.Helper()
	if response := ask(d, at, http.Header{"If-None-Match": {etag}}); response.StatusCode != http.StatusNotModified {
		t.Errorf("a cached document: %s, want 304", response.Status)
	}
}
