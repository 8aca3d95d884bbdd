package clustergateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
)

// testStreams checks streams to a pod of a member through the gateway.
func testStreams(t *testing.T, w *world) {
	namespace := w.namespace(t, "streams")
	w.run(t, 1, namespace, "one", nil)
	w.eventuallyPod(t, "the pod runs", namespace, "one", running)
	gatewaytest.CheckStreams(t, w.gateway.Config(t), gatewaytest.Pod{Namespace: namespace, Name: "one", Log: w.Members[1].PodLog()})
	t.Run("Headers", func(t *testing.T) { gatewaytest.CheckStreamHeaders(t, w.Members[1], w.gateway.Config(t), namespace) })
	t.Run("Headers of watches", func(t *testing.T) {
		gatewaytest.CheckWatchHeaders(t, w.gateway.Config(t), "/api/v1/pods", "/api/v1/namespaces/"+namespace+"/pods", "/api/v1/nodes")
	})
}

// testSubresources changes a pod of a member through its subresources: ephemeral containers, as kubectl debug adds them, and eviction.
func testSubresources(t *testing.T, w *world) {
	namespace := w.namespace(t, "subresources")
	w.run(t, 0, namespace, "one", nil)
	w.eventuallyPod(t, "the pod runs", namespace, "one", running)
	old := w.settle(t, namespace, "one")
	check(t, second(w.members[0].CoreV1().Pods(namespace).Patch(t.Context(), "one", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"there"}}}`), metav1.PatchOptions{})))
	current := w.settle(t, namespace, "one")
	debugged := func(pod *corev1.Pod, name string) error {
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "debugger"}})
		return second(w.client.CoreV1().Pods(namespace).UpdateEphemeralContainers(t.Context(), "one", pod, metav1.UpdateOptions{}))
	}
	if err := debugged(old, "too-late"); !apierrors.IsConflict(err) {
		t.Errorf("ephemeral containers based on an old view: %v, want a conflict", err)
	}
	check(t, debugged(current, "first"))
	w.kubectl.Must(t, "debug", "one", "-n", namespace, "--image=debugger", "--container=second", "--", "true")
	there, err := w.members[0].CoreV1().Pods(namespace).Get(t.Context(), "one", metav1.GetOptions{})
	check(t, err)
	if got := there.Spec.EphemeralContainers; len(got) != 2 || got[0].Name != "first" || got[1].Name != "second" {
		t.Errorf("the ephemeral containers are %v", got)
	}
	current = w.settle(t, namespace, "one")
	evict := func(version string) error {
		return w.client.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: "one"},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}},
		})
	}
	if err := evict(old.ResourceVersion); !apierrors.IsConflict(err) {
		t.Errorf("an eviction based on an old view: %v, want a conflict", err)
	}
	check(t, evict(current.ResourceVersion))
	w.eventuallyPod(t, "the pod is gone", namespace, "one", gone)
}

// testWebSocketWatch watches the pods of members over a WebSocket, as browsers do: every message is an event.
func testWebSocketWatch(t *testing.T, w *world) {
	w.checkWebSocketWatch(t, w.namespace(t, "websocket"))
}

func (w *world) checkWebSocketWatch(t *testing.T, namespace string) {
	t.Helper()
	for i := range 2 {
		w.run(t, i, namespace, fmt.Sprintf("pod-%d", i), nil)
	}
	for i := range 2 {
		w.eventuallyPod(t, "the pods run", namespace, fmt.Sprintf("pod-%d", i), running)
	}
	for _, encoding := range encodings {
		socket := w.socket(t, "/api/v1/namespaces/"+namespace+"/pods?watch=1", encoding)
		seen := map[string]bool{}
		for len(seen) < 2 {
			if kind, pod := nextMessage(t, socket, encoding); kind == "ADDED" {
				seen[pod.Name] = true
			}
		}
		check(t, second(w.members[1].CoreV1().Pods(namespace).Patch(t.Context(), "pod-1", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"seen-as":%q}}}`, encoding), metav1.PatchOptions{})))
		for {
			kind, pod := nextMessage(t, socket, encoding)
			if kind != "MODIFIED" {
				t.Fatalf("%s: got %s of %s", encoding, kind, pod.Name)
			}
			if pod.Annotations["seen-as"] == encoding {
				break
			}
		}
		check(t, socket.Close())
	}
}

func (w *world) socket(t *testing.T, path, accept string) *websocket.Conn {
	t.Helper()
	config := w.gateway.Config(t)
	secure, err := rest.TLSConfigFor(config)
	check(t, err)
	secure.NextProtos = []string{"http/1.1"}
	to, err := websocket.NewConfig("wss"+strings.TrimPrefix(config.Host, "https")+path, config.Host)
	check(t, err)
	to.TlsConfig, to.Header = secure, http.Header{"Accept": {accept}}
	socket, err := to.DialContext(t.Context())
	check(t, err)
	return socket
}

func nextMessage(t *testing.T, socket *websocket.Conn, encoding string) (string, *corev1.Pod) {
	t.Helper()
	check(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
	var message []byte
	check(t, websocket.Message.Receive(socket, &message))
	var event metav1.WatchEvent
	if encoding == encodings[0] {
		check(t, json.Unmarshal(message, &event))
	} else {
		check(t, event.Unmarshal(message))
	}
	pod := &corev1.Pod{}
	check(t, runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), event.Object.Raw, pod))
	return event.Type, pod
}
