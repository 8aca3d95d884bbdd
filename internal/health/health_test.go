package health_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/internal/health"
	"github.com/cellplane/cellplane/internal/ports"
)

// TestServe serves everything at one address, and nothing but probes at the other.
func TestServe(t *testing.T) {
	addresses := []string{free(t), free(t)}
	var ready atomic.Bool
	part := health.Part{
		Ready: func() error {
			if !ready.Load() {
				return errors.New("still reading")
			}
			return nil
		},
		Metrics:  gatherer(t),
		Handlers: map[string]http.HandlerFunc{"GET /more": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("more")) }},
	}
	stop, err := part.Serve(t.Context(), addresses[0], addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, address := range addresses {
		expect(t, address, "/healthz", http.StatusOK, "ok")
		expect(t, address, "/readyz", http.StatusServiceUnavailable, "still reading")
	}
	ready.Store(true)
	expect(t, addresses[1], "/readyz", http.StatusOK, "ok")
	expect(t, addresses[0], "/metrics", http.StatusOK, "test_metric 1")
	expect(t, addresses[0], "/more", http.StatusOK, "more")
	expect(t, addresses[1], "/metrics", http.StatusNotFound, "")
	expect(t, addresses[1], "/more", http.StatusNotFound, "")

	if _, err := part.Serve(t.Context(), "", addresses[1]); err == nil || !strings.Contains(err.Error(), "--health-address") {
		t.Errorf("a second server at %s: %v", addresses[1], err)
	}
	third := free(t)
	if _, err := part.Serve(t.Context(), third, addresses[1]); err == nil {
		t.Error("an address was used twice")
	}
	again, err := part.Serve(t.Context(), third, "")
	if err != nil {
		t.Fatalf("the address of a server that could not start is still in use: %v", err)
	}
	again()
	stop()
	if again, err = part.Serve(t.Context(), addresses[0], addresses[1]); err != nil {
		t.Fatalf("the addresses are still in use: %v", err)
	}
	again()
}

func expect(t *testing.T, address, path string, code int, words string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != code || !strings.Contains(string(body), words) {
		t.Errorf("%s: %d %q (%v), want %d %q", path, response.StatusCode, body, err, code, words)
	}
}

func gatherer(t *testing.T) prometheus.Gatherer {
	t.Helper()
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_metric", Help: "A metric."})
	gauge.Set(1)
	registry.MustRegister(gauge)
	return registry
}

func free(t *testing.T) string {
	t.Helper()
	port, err := ports.Choose()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ports.Release(port) })
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
