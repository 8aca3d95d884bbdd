package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
)

// testWebSocketWatch watches over a WebSocket, as browsers do: every message is an event.
func testWebSocketWatch(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "websocket")
	fill(t, w.client, namespace, 6)
	path := "/api/v1/namespaces/" + namespace + "/configmaps?watch=1"
	for _, encoding := range encodings {
		socket, err := w.socket(t, path, encoding)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			if kind, object := nextMessage(t, socket, encoding); kind != "ADDED" || object.Data == nil {
				t.Errorf("%s: got %s of %v", encoding, kind, object)
			}
		}
		if _, err := w.client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), "map-003", types.MergePatchType, fmt.Appendf(nil, `{"data":{"by":%q}}`, encoding), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if kind, object := nextMessage(t, socket, encoding); kind != "MODIFIED" || object.Data["by"] != encoding {
			t.Errorf("%s: got %s of %v", encoding, kind, object)
		}
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	}
	expired, err := w.socket(t, path+"&resourceVersion=1"+strings.Repeat("3", 29), "application/json")
	if err != nil {
		t.Fatal(err)
	}
	defer expired.Close()
	var event metav1.WatchEvent
	if err := websocket.JSON.Receive(expired, &event); err != nil || event.Type != "ERROR" || !strings.Contains(string(event.Object.Raw), `"code":410`) {
		t.Errorf("from a foreign version: %s, %v", event.Object.Raw, err)
	}
	ending, err := w.socket(t, path+"&timeoutSeconds=1&labelSelector=nothing", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	defer ending.Close()
	if err := websocket.JSON.Receive(ending, &event); err == nil {
		t.Errorf("got %v, want the end", event)
	}
	if _, err := w.socket(t, path+"&sendInitialEvents=true", "application/json"); err == nil {
		t.Error("a watch with invalid options was served")
	}
}

func (w *world) socket(t *testing.T, path, accept string) (*websocket.Conn, error) {
	t.Helper()
	config := w.gateway.Config(t)
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	secure.NextProtos = []string{"http/1.1"}
	to, err := websocket.NewConfig("wss"+strings.TrimPrefix(config.Host, "https")+path, config.Host)
	if err != nil {
		t.Fatal(err)
	}
	to.TlsConfig, to.Header = secure, http.Header{"Accept": {accept}}
	return to.DialContext(t.Context())
}

func nextMessage(t *testing.T, socket *websocket.Conn, encoding string) (string, *corev1.ConfigMap) {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var message []byte
	if err := websocket.Message.Receive(socket, &message); err != nil {
		t.Fatal(err)
	}
	var event metav1.WatchEvent
	if encoding == "application/json" {
		if err := json.Unmarshal(message, &event); err != nil {
			t.Fatalf("%.200q: %v", message, err)
		}
	} else if err := event.Unmarshal(message); err != nil {
		t.Fatalf("%.200q: %v", message, err)
	}
	object := &corev1.ConfigMap{}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), event.Object.Raw, object); err != nil {
		t.Fatal(err)
	}
	return event.Type, object
}
