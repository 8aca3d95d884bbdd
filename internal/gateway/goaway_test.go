package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
)

// testGoaway checks that clients are sometimes made to reconnect, without an error: behind a load balancer they reach another replica.
func testGoaway(t *testing.T, w *world) {
	g := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.GoawayChance = 0.02 })
	var dialled atomic.Int64
	config := g.Config(t)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const enough = 5000 // the probability that none of them reconnects is 10⁻⁴⁴
	for range enough {
		response, err := client.Get(g.URL() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
			t.Fatalf("got %s, %v", response.Status, err)
		}
		if dialled.Load() > 2 {
			return
		}
	}
	t.Errorf("after %d requests there were %d connections", enough, dialled.Load())
}
