package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// openWatch opens a watch that gets no event, and returns when its header has arrived.
func openWatch(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	overdue := errors.New("no header arrived")
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(eventTimeout, func() { cancel(overdue) })
	defer timer.Stop()
	response, err := client.Do(request.WithContext(ctx))
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	context.AfterFunc(ctx, func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// testStreamHeaders opens watches without events on every path to a control plane: the header arrives at once, as with an API server.
func testStreamHeaders(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "stream-headers")
	client, err := rest.HTTPClientFor(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"namespaces on the hub":             "/api/v1/namespaces?watch=1",
		"definitions on the hub":            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?watch=1",
		"flow schemas on the hub":           "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas?watch=1",
		"clusters on the hub":               "/apis/cluster.karmada.io/v1alpha1/clusters?watch=1",
		"policies of a namespace":           "/apis/policy.karmada.io/v1alpha1/namespaces/" + namespace + "/propagationpolicies?watch=1",
		"the hub under /federation":         "/federation/api/v1/namespaces?watch=1",
		"objects in cells":                  "/api/v1/namespaces/" + namespace + "/configmaps?watch=1",
		"objects in cells, all namespaces":  "/api/v1/configmaps?watch=1",
		"one object in a cell":              "/api/v1/namespaces/" + namespace + "/configmaps?watch=1&fieldSelector=metadata.name%3Dnone",
		"the present objects in cells":      "/api/v1/namespaces/" + namespace + "/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"events in cells and on the hub":    "/api/v1/namespaces/" + namespace + "/events?watch=1",
		"bindings in cells and on the hub":  "/apis/work.karmada.io/v1alpha2/namespaces/" + namespace + "/resourcebindings?watch=1",
		"objects in cells under federation": "/federation/apis/apps/v1/namespaces/" + namespace + "/deployments?watch=1",
	} {
		t.Run(name, func(t *testing.T) {
			if err := openWatch(t.Context(), client, w.gateway.URL()+path+"&labelSelector=nothing%3Dhas-this"); err != nil {
				t.Error(err)
			}
		})
	}
}

// testWatchSeats opens far more watches than there are seats in flow control. They hold none, so other requests are served.
func testWatchSeats(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "watch-seats")
	small := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.MaxRequestsInFlight, o.MaxMutatingRequestsInFlight = 20, 10 })
	w.admit(t, small, "walter")
	config := small.ConfigFor(t, "walter")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/namespaces/" + namespace + "/configmaps", "/api/v1/namespaces"} {
		for range 60 {
			if err := openWatch(t.Context(), client, small.URL()+path+"?watch=1&labelSelector=nothing%3Dhas-this"); err != nil {
				t.Fatalf("watching %s: %v", path, err)
			}
		}
	}
	if _, err := clientFor(t, config).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a list beside the watches: %v", err)
	}
}

// testStreamLimit opens as many watches as a user may have, on the hub and in cells. One more gets 429, another user is not affected, and
// watches that end make room.
func testStreamLimit(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "stream-limit")
	limited := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.MaxStreamsPerUser = 4 })
	w.admit(t, limited, "wanda")
	w.admit(t, limited, "willy")
	clientOf := func(name string) *http.Client {
		client, err := rest.HTTPClientFor(limited.ConfigFor(t, name))
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	const none = "?watch=1&labelSelector=nothing%3Dhas-this"
	inCells, onHub := limited.URL()+"/api/v1/namespaces/"+namespace+"/configmaps"+none, limited.URL()+"/api/v1/namespaces"+none
	ctx, cancel := context.WithCancel(t.Context())
	wanda := clientOf("wanda")
	for _, url := range []string{inCells, onHub, inCells, onHub} {
		if err := openWatch(ctx, wanda, url); err != nil {
			t.Fatal(err)
		}
	}
	for _, url := range []string{inCells, onHub} {
		if err := openWatch(t.Context(), wanda, url); err == nil || err.Error() != "429 Too Many Requests" {
			t.Errorf("one watch too many: %v", err)
		}
		if err := openWatch(t.Context(), clientOf("willy"), url); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
	cancel()
	testenv.Eventually(t, "watches that have ended are not counted", func(context.Context) (bool, error) {
		err := openWatch(t.Context(), wanda, inCells)
		return err == nil, err
	})
}
