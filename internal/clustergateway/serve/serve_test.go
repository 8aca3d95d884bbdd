package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// newServer serves the pods of a store with a short history.
func newServer(t testing.TB) (*Server, *clustercache.Store) {
	t.Helper()
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods(), History: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	server := New()
	server.Ready = func() bool { return true }
	all := views.Default()
	server.Add(all[slices.IndexFunc(all, func(v views.View) bool { return v.Resource.Resource == "pods" })], clustercache.Pods(), store)
	return server, store
}

func applyPod(t testing.TB, feed *clustercache.Feed, name string, version int) {
	t.Helper()
	if err := feed.ApplyObject(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "1", ResourceVersion: fmt.Sprint(version)}}); err != nil {
		t.Fatal(err)
	}
}

func ask(t testing.TB, server http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, request)
	return answer
}

// TestVersionsThatHaveLeftTheHistory uses a version of this server that has left the history. Only requests that
// need exactly that version fail.
func TestVersionsThatHaveLeftTheHistory(t *testing.T) {
	server, store := newServer(t)
	feed := store.Feed("m1")
	applyPod(t, feed, "web", 1)
	old := store.Version()
	for i := range 30 {
		applyPod(t, feed, "web", 2+i)
	}
	const pods = "/api/v1/namespaces/default/pods"
	for query, want := range map[string]int{
		"?resourceVersion=%d": http.StatusOK,
		"?resourceVersion=%d&resourceVersionMatch=NotOlderThan": http.StatusOK,
		"?resourceVersion=%d&resourceVersionMatch=Exact":        http.StatusGone,
		"/web?resourceVersion=%d":                               http.StatusOK,
	} {
		if answer := ask(t, server, pods+fmt.Sprintf(query, old)); answer.Code != want {
			t.Errorf("%s: %d, want %d: %s", query, answer.Code, want, answer.Body)
		}
		if answer := ask(t, server, pods+fmt.Sprintf(query, old+1)); answer.Code != http.StatusGone {
			t.Errorf("%s of another replica: %d, want 410", query, answer.Code)
		}
	}
	if answer := ask(t, server, pods+fmt.Sprintf("?watch=1&resourceVersion=%d", old)); !strings.Contains(answer.Body.String(), `"code":410`) {
		t.Errorf("a watch from the old version: %s", answer.Body)
	}
	answer := ask(t, server, pods+fmt.Sprintf("?watch=1&resourceVersion=%d&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", old))
	if body := answer.Body.String(); !strings.Contains(body, "ADDED") || !strings.Contains(body, "initial-events-end") {
		t.Errorf("a watch with initial events: %s", body)
	}
}

// TestContestedEvents watches a share. Only a gateway that merges shares receives events of contested names.
func TestContestedEvents(t *testing.T) {
	server, store := newServer(t)
	server.Shown = func() ([]string, bool, <-chan struct{}) { return []string{"m1"}, false, make(chan struct{}) }
	from := store.Version()
	applyPod(t, store.Feed("m2"), "web", 1)
	applyPod(t, store.Feed("m1"), "web", 1) // the first cluster by name
	path := fmt.Sprintf("/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=%d", from)
	if got := ask(t, server, path).Body.String(); strings.Count(got, `"type":"ADDED"`) != 1 || strings.Contains(got, names.ContestedAnnotation) {
		t.Errorf("another client received %s", got)
	}
	for _, accept := range []string{"application/json", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1"} {
		got := ask(t, server, path, views.ContestedHeader, "true", "Accept", accept).Body.String()
		if strings.Count(got, `"type":"DELETED"`) != 2 || strings.Count(got, names.ContestedAnnotation) != 2 || strings.Contains(got, "ADDED") {
			t.Errorf("as %s a gateway received %s", accept, got)
		}
	}
}

// FuzzQuestion lists with arbitrary query parameters: options, versions, and tokens of this server or of a gateway that merges several.
func FuzzQuestion(f *testing.F) {
	server, store := newServer(f)
	feed := store.Feed("m1")
	for i := range 3 {
		applyPod(f, feed, fmt.Sprint("web-", i), 1)
	}
	f.Add(fmt.Sprint(store.Version()), "", "NotOlderThan", "", "")
	f.Add("", clustercache.ContinueAfter(store.Version(), "default", "web-0"), "", "app=x", "")
	f.Add("0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiZGVmYXVsdC93ZWItMFx1MDAwMCJ9", "", "", "spec.nodeName=n")
	f.Fuzz(func(t *testing.T, version, token, match, labels, fields string) {
		query := url.Values{"resourceVersion": {version}, "continue": {token}, "resourceVersionMatch": {match}, "labelSelector": {labels}, "fieldSelector": {fields}, "limit": {"2"}}
		answer := ask(t, server, "/api/v1/pods?"+query.Encode())
		switch answer.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusGone, http.StatusUnprocessableEntity:
		default:
			t.Fatalf("got %d: %s", answer.Code, answer.Body)
		}
	})
}
