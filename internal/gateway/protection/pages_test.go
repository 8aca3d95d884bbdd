package protection

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/limits"
)

// collections are Objects of one resource, none of which is protected.
type collections struct {
	Objects
	resource kinds.Resource
	searches atomic.Int32
}

// Resource implements Objects.
func (c *collections) Resource(context.Context, schema.GroupVersionResource) (kinds.Resource, bool) {
	return c.resource, true
}

// Find implements Objects.
func (c *collections) Find(context.Context, kinds.Resource, string, url.Values, int) ([][]byte, error) {
	c.searches.Add(1)
	return nil, nil
}

// Get implements Objects.
func (c *collections) Get(_ context.Context, info *request.RequestInfo) ([]byte, error) {
	return []byte(`{"kind":"Deployment","metadata":{"name":"` + info.Name + `","uid":"u","resourceVersion":"7"}}`), nil
}

// TestCollectionPages checks how many objects the gateway holds at once while it deletes a collection, and in which form. An object is as large as its
// metadata, and clients that ask for pages get them as they are.
func TestCollectionPages(t *testing.T) {
	resource := kinds.Resource{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments"), Kind: "Deployment", Namespaced: true, Verbs: []string{"deletecollection"}}
	policies := &Policies{namespaces: corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil))}
	policies.publish(nil)
	for _, test := range []struct {
		query string
		size  int // of each object
		want  string
	}{
		{"", 0, "metadata limit=500, answered 200 Status"},
		{"?limit=0", 0, "metadata limit=500, answered 200 Status"},
		{"?continue=x", 0, "metadata limit=500 continue=x, answered 200 Status"},
		{"?limit=7", 0, "all limit=7, answered 200 List"},
		{"?limit=100000", 0, "all limit=500, answered 200 List"},
		{"", 140 << 10, "metadata limit=500, metadata limit=250, answered 200 Status"},
		{"?limit=1", 65 << 20, "all limit=1, answered 413 Status"},
	} {
		budget := limits.NewBudget(1<<30, time.Second)
		grant := budget.Open(limits.Owner{Name: "someone"})
		var asked []string
		var deleted atomic.Int32
		objects := &collections{resource: resource}
		guard := &Guard{Policies: policies, Objects: objects, Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				deleted.Add(1)
				return
			}
			query, form := r.URL.Query(), "all"
			if r.Header.Get("Accept") == metadataOnly {
				form = "metadata"
			}
			of := form + " limit=" + query.Get("limit")
			if query.Get("continue") != "" {
				of += " continue=" + query.Get("continue")
			}
			asked = append(asked, of)
			var n int
			_, _ = fmt.Sscan(query.Get("limit"), &n)
			object := `{"metadata":{"name":"a","annotations":{"a":"` + strings.Repeat("x", test.size) + `"}}}`
			_, _ = w.Write([]byte(`{"kind":"List","items":[`))
			for i := range n {
				if i > 0 {
					_, _ = w.Write([]byte(","))
				}
				if _, err := w.Write([]byte(object)); err != nil {
					panic(http.ErrAbortHandler)
				}
			}
			_, _ = w.Write([]byte(`]}`))
		})}
		info := &request.RequestInfo{
			IsResourceRequest: true, Verb: "deletecollection", APIPrefix: "apis", APIGroup: "apps", APIVersion: "v1", Namespace: "ns", Resource: "deployments",
			Path: "/apis/apps/v1/namespaces/ns/deployments", Parts: []string{"deployments"},
		}
		r := httptest.NewRequestWithContext(limits.WithGrant(request.WithRequestInfo(t.Context(), info), grant), http.MethodDelete, info.Path+test.query, http.NoBody)
		answer := httptest.NewRecorder()
		guard.ServeHTTP(answer, r)
		kind := "List"
		if strings.Contains(answer.Body.String(), `"kind":"Status"`) {
			kind = "Status"
		}
		if got := fmt.Sprintf("%s, answered %d %s", strings.Join(asked, ", "), answer.Code, kind); got != test.want {
			t.Errorf("%q with objects of %d bytes: %s, want %s", test.query, test.size, got, test.want)
		}
		if succeeded := answer.Code == http.StatusOK; succeeded != (deleted.Load() > 0) || succeeded != (objects.searches.Load() > 0) {
			t.Errorf("%q: %d objects were deleted after %d searches for protected ones", test.query, deleted.Load(), objects.searches.Load())
		}
		grant.Close()
		if held := budget.Usage().Held; held != 0 {
			t.Errorf("%q: %d bytes are held after the request", test.query, held)
		}
	}
}
