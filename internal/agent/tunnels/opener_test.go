package tunnels

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/tunnel"
)

// gateway passes tunnels on to the first end that is not held.
type gateway struct {
	*httptest.Server
	ends [2]atomic.Pointer[tunnel.Tunnels]
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{}
	for i := range g.ends {
		g.ends[i].Store(&tunnel.Tunnels{})
	}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/federation/apis/cluster.karmada.io/v1alpha1/clusters/m1/tunnel" || r.Header.Get("Upgrade") != tunnel.Protocol {
			http.Error(w, "not here", http.StatusNotFound)
			return
		}
		for i := range g.ends {
			name := fmt.Sprint("end-", i)
			if strings.Contains(r.Header.Get(tunnel.HeldHeader), name) {
				continue
			}
			if connection, err := tunnel.Take(w, tunnel.Protocol, http.Header{tunnel.EndHeader: {name}}); err == nil {
				_ = g.ends[i].Load().Serve("m1", connection)
			}
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	g.EnableHTTP2 = true // as gateways do
	g.StartTLS()
	t.Cleanup(func() {
		g.ends[0].Load().Close()
		g.ends[1].Load().Close()
		g.Close()
	})
	return g
}

func (g *gateway) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.Certificate().Raw})
	return &rest.Config{Host: g.URL + "/federation", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// TestOpener opens a tunnel to each end, and again to one that has lost it.
func TestOpener(t *testing.T) {
	g := newGateway(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Impersonate-User"), r.URL.Path)
	}))
	defer api.Close()
	o, err := New("m1", g.config(), &rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	for i := range g.ends {
		g.reaches(t, i)
	}
	if count := g.ends[0].Load().Count() + g.ends[1].Load().Count(); count != 2 || o.Count() != 2 {
		t.Errorf("there are %d tunnels, and the agent counts %d", count, o.Count())
	}
	// An end goes away and comes back.
	g.ends[1].Load().Close()
	g.ends[1].Store(&tunnel.Tunnels{})
	g.reaches(t, 1)
	g.reaches(t, 0)
}

// reaches waits until the member is reached from an end.
func (g *gateway) reaches(t *testing.T, end int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return g.ends[end].Load().Dial(ctx, "m1") }}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://m1/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Impersonate-User", "alice")
		response, err := client.Do(request)
		if err == nil {
			said := make([]byte, 100)
			n, _ := response.Body.Read(said)
			response.Body.Close()
			if string(said[:n]) != "alice/api" {
				t.Errorf("end %d got %q", end, said[:n])
			}
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("end %d does not reach the member: %v", end, err)
		case <-ticker.C:
		}
	}
}
