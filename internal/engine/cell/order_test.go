package cell_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Works are read after clusters, which say who applies them: a Work that an agent applies must never look like ours.
func TestClustersBeforeWorks(t *testing.T) {
	var clusters, works atomic.Bool
	proxy := newProxy(t)
	// The engine has the clusters when it has the whole answer, which is sent after this.
	proxy.ModifyResponse = func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/clusters") || watches(r.Request) {
			return nil
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		clusters.Store(true)
		return err
	}
	startBehind(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/works") && !watches(r) {
			works.Store(true)
			if !clusters.Load() {
				t.Error("Works are read before the clusters are cached")
			}
		}
		proxy.ServeHTTP(w, r)
	})
	if !works.Load() {
		t.Error("Works were not read")
	}
}

func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }
