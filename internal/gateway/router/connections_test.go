package router

import (
	"io"
	"net/http"
	"sync"
	"testing"
)

// TestSeveralConnections checks that requests use several connections: a large answer on one must not block the others.
func TestSeveralConnections(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	rt := routerWithCell(t, func(w http.ResponseWriter, r *http.Request) {
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
			t.Fatalf("list: status %d, %d bytes", w.code, w.bytes)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) < 2 {
		t.Errorf("40 lists used only these connections: %v", seen)
	}
}
