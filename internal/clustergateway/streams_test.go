package clustergateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
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
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/cellplane/cellplane/internal/testenv"
)

// testStreams looks into a pod of a member as if it were one of the gateway's own, by every protocol that clients have.
func testStreams(t *testing.T, w *world) {
	namespace := w.namespace(t, "streams")
	w.run(t, 1, namespace, "one", nil)
	w.eventuallyPod(t, "the pod runs", namespace, "one", running)
	config := w.gateway.Config(t)
	at := func(subresource string) *rest.Request {
		return w.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name("one").SubResource(subresource)
	}
	t.Run("Logs", func(t *testing.T) { checkLogs(t, w, namespace) })
	for name, executor := range map[string]func(to *url.URL) (remotecommand.Executor, error){
		"SPDY": func(to *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(config, http.MethodPost, to)
		},
		"WebSocket": func(to *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(config, http.MethodGet, to.String())
		},
	} {
		t.Run("Exec over "+name, func(t *testing.T) {
			options := &corev1.PodExecOptions{Container: "main", Command: []string{"sh", "-c", "read line; echo $line; echo problem >&2"}, Stdin: true, Stdout: true, Stderr: true}
			command, err := executor(at("exec").VersionedParams(options, scheme.ParameterCodec).URL())
			check(t, err)
			var out, problems bytes.Buffer
			err = command.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("there and back\n"), Stdout: &out, Stderr: &problems})
			if err != nil || out.String() != "there and back\n" || problems.String() != "problem\n" {
				t.Errorf("the command said %q and %q and ended with %v", out.String(), problems.String(), err)
			}
		})
		t.Run("Attach over "+name, func(t *testing.T) {
			attached, err := executor(at("attach").VersionedParams(&corev1.PodAttachOptions{Container: "main", Stdout: true}, scheme.ParameterCodec).URL())
			check(t, err)
			checkAttached(t, w, attached)
		})
	}
	t.Run("PortForward over SPDY", func(t *testing.T) {
		transport, upgrader, err := spdy.RoundTripperFor(config)
		check(t, err)
		dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at("portforward").URL())
		checkForwarded(t, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		})
	})
	t.Run("PortForward over WebSocket", func(t *testing.T) {
		dialer, err := portforward.NewSPDYOverWebsocketDialer(at("portforward").URL(), config)
		check(t, err)
		checkForwarded(t, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		})
	})
}

// say lets the pods of a member say something.
func (w *world) say(t testing.TB, member int, text string) {
	t.Helper()
	log, err := os.OpenFile(w.Members[member].PodLog(), os.O_APPEND|os.O_WRONLY, 0o600)
	check(t, err)
	defer log.Close()
	_, err = log.WriteString("2026-01-02T03:04:05.000000006Z stdout F " + text + "\n")
	check(t, err)
}

// checkLogs follows the log of a pod: what is said while it is followed arrives.
func checkLogs(t *testing.T, w *world, namespace string) {
	w.say(t, 1, "hello")
	stream, err := w.client.CoreV1().Pods(namespace).GetLogs("one", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	check(t, err)
	defer stream.Close()
	lines := bufio.NewReader(stream)
	for _, want := range []string{"hello", "and on"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("read %q, %v; want %q", line, err, want)
		}
		w.say(t, 1, "and on") // only now, so that what comes next is a stream
	}
}

func checkAttached(t *testing.T, w *world, attached remotecommand.Executor) {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- attached.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: writer})
		writer.Close()
	}()
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(reader).ReadString('\n')
		said <- line
	}()
	// What the pod says from now on arrives, and nobody knows when now is.
	testenv.Eventually(t, "what the pod says arrives", func(context.Context) (bool, error) {
		w.say(t, 1, "attached")
		select {
		case line := <-said:
			if line != "attached\n" {
				t.Errorf("the pod said %q", line)
			}
			return true, nil
		case err := <-ended:
			t.Fatalf("the stream ended: %v", err)
		default:
		}
		return false, nil
	})
}

// checkForwarded sends something to a port of a pod, which sends it back.
func checkForwarded(t *testing.T, open func(stop, ready chan struct{}) (*portforward.PortForwarder, error)) {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := open(stop, ready)
	check(t, err)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("forwarding ended with %v", err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatalf("nothing was forwarded: %v", err)
	}
	ports, err := forwarder.GetPorts()
	check(t, err)
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	check(t, err)
	defer connection.Close()
	_, err = connection.Write([]byte("there and back\n"))
	check(t, err)
	if line, err := bufio.NewReader(connection).ReadString('\n'); err != nil || line != "there and back\n" {
		t.Errorf("%q came back: %v", line, err)
	}
}

// testSubresources changes a pod of a member by way of its subresources: ephemeral containers, as kubectl debug adds them, and eviction.
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
