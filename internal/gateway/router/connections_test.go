package router

import (
	"io"
	"net/http"
	"sync"
	"testing"
)

// TestSeveralConnections shows that requests are spread over several connections: a large answer on one is not in the way of the others.
func TestSeveralConnections(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	rt := routerBefore(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.ProtoMajor == 2 {
			seen[r.RemoteAddr]++
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, listHead+"]}")
	})
	for range 40 {
		w := &counter{header: http.Header{}}
		if ask(t.Context(), rt, "list", "", "application/json", w) || w.bytes == 0 {
			t.Fatalf("a list is answered with %d and %d bytes", w.code, w.bytes)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) < 2 {
		t.Errorf("40 lists went over these connections: %v", seen)
	}
}
