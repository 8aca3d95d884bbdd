package protection

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// crowded are Objects of which searches end when the test allows it.
type crowded struct {
	Objects
	running, searched atomic.Int32
	enough            chan struct{}
}

// Namespaced implements Objects.
func (*crowded) Namespaced(context.Context) ([]kinds.Resource, error) {
	var all []kinds.Resource
	for i := range 20 {
		all = append(all, kinds.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: fmt.Sprintf("kind%d", i)}})
	}
	return all, nil
}

// Find implements Objects.
func (c *crowded) Find(context.Context, kinds.Resource, string, url.Values, int) ([][]byte, error) {
	c.running.Add(1)
	defer c.running.Add(-1)
	c.searched.Add(1)
	<-c.enough
	return nil, nil
}

// TestManyNamespaces deletes many namespaces at once. Their searches must not exceed what the API servers of cells take from a gateway.
func TestManyNamespaces(t *testing.T) {
	policies := &Policies{namespaces: corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))}
	policies.publish(nil)
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 50
		objects := &crowded{enough: make(chan struct{})}
		guard := &Guard{Objects: Bounded(objects), Policies: policies}
		for i := range namespaces {
			go func() {
				if _, err := guard.insideNamespace(t.Context(), &request.RequestInfo{Name: fmt.Sprintf("namespace-%d", i)}); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if running := objects.running.Load(); running != searches {
			t.Errorf("%d searches run at once, want %d", running, searches)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := guard.insideNamespace(over, &request.RequestInfo{Name: "over"}); err == nil {
			t.Error("a request that is over was answered")
		}
		close(objects.enough)
		synctest.Wait()
		if searched := objects.searched.Load(); searched != namespaces*20 {
			t.Errorf("%d searches were made, want %d", searched, namespaces*20)
		}
	})
}
