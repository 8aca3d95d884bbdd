package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// writes counts the writes of an engine, by kind.
type writes struct {
	mu     sync.Mutex
	counts map[string]int
}

func newWrites() *writes { return &writes{counts: map[string]int{}} }

// count counts the requests that go through a transport.
func (w *writes) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			w.mu.Lock()
			w.counts[kindOfWrite(r)]++
			w.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// kindOfWrite names a write by its method and resource.
func kindOfWrite(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if at := slices.Index(parts, "namespaces"); at >= 0 && len(parts) > at+2 {
		parts = parts[at+2:]
	} else if parts[0] == "apis" && len(parts) > 3 {
		parts = parts[3:]
	} else if len(parts) > 2 {
		parts = parts[2:]
	}
	name := r.Method + " " + parts[0]
	if len(parts) > 2 {
		name += "/" + parts[2]
	}
	return name
}

// take returns the counts since the last call, per binding.
func (w *writes) take(bindings int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(w.counts)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", kind, float64(w.counts[kind])/float64(bindings)))
	}
	w.counts = map[string]int{}
	return strings.Join(parts, ", ")
}
