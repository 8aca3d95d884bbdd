package gatewaytest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/testenv"
)

// silent is the name of a pod, and of its node, whose kubelet accepts every stream and then sends nothing.
const silent = "silent"

// CheckStreamHeaders opens streams to a pod that sends nothing: logs -f, exec, attach and port-forward. The headers arrive at once.
//
// The member's API server is a real one. The kubelet is not: it is a small server in this process that sends its header and then holds the
// stream. A real one, and kwok's, may send the header of a log with the first line only, and would not show a delay on the way.
func CheckStreamHeaders(t *testing.T, member *controlplane.ControlPlane, config *rest.Config, namespace string) {
	t.Helper()
	runSilentPod(t, member, namespace)
	client := clientFor(t, config)
	testenv.Eventually(t, "the silent pod runs", func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, silent, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	pod := "/api/v1/namespaces/" + namespace + "/pods/" + silent
	spdy := func(protocol string) http.Header {
		return http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {protocol}}
	}
	webSocket := func(protocol string) http.Header {
		return http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-WebSocket-Version": {"13"},
			"Sec-WebSocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-WebSocket-Protocol": {protocol},
		}
	}
	for _, stream := range []struct {
		name, method, path string
		header             http.Header
		status             int
	}{
		{"Logs", http.MethodGet, pod + "/log?follow=true", nil, http.StatusOK},
		{"Exec over SPDY", http.MethodPost, pod + "/exec?command=true&stdout=true", spdy("v4.channel.k8s.io"), http.StatusSwitchingProtocols},
		{"Exec over WebSocket", http.MethodGet, pod + "/exec?command=true&stdout=true", webSocket("v5.channel.k8s.io"), http.StatusSwitchingProtocols},
		{"Attach over SPDY", http.MethodPost, pod + "/attach?stdout=true", spdy("v4.channel.k8s.io"), http.StatusSwitchingProtocols},
		{"Attach over WebSocket", http.MethodGet, pod + "/attach?stdout=true", webSocket("v5.channel.k8s.io"), http.StatusSwitchingProtocols},
		{"PortForward over SPDY", http.MethodPost, pod + "/portforward", spdy("portforward.k8s.io"), http.StatusSwitchingProtocols},
		{"PortForward over WebSocket", http.MethodGet, pod + "/portforward", webSocket("SPDY/3.1+portforward.k8s.io"), http.StatusSwitchingProtocols},
	} {
		t.Run(stream.name, func(t *testing.T) {
			status, err := headerOf(t.Context(), config, stream.method, stream.path, stream.header)
			if err != nil || status != stream.status {
				t.Errorf("got status %d, %v; want %d", status, err, stream.status)
			}
		})
	}
}

// CheckWatchHeaders opens watches that get no event. The headers arrive at once.
func CheckWatchHeaders(t *testing.T, config *rest.Config, collections ...string) {
	t.Helper()
	for _, collection := range collections {
		t.Run(collection, func(t *testing.T) {
			status, err := headerOf(t.Context(), config, http.MethodGet, collection+"?watch=1&labelSelector=nothing%3Dhas-this", nil)
			if err != nil || status != http.StatusOK {
				t.Errorf("got status %d, %v; want %d", status, err, http.StatusOK)
			}
		})
	}
}

// headerOf sends a request and returns the status when the header of the answer has arrived.
func headerOf(ctx context.Context, config *rest.Config, method, path string, header http.Header) (int, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, headerTimeout, errors.New("no header arrived"))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, nil)
	if err != nil {
		return 0, err
	}
	if header != nil {
		request.Header = header
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, errors.Join(err, context.Cause(ctx))
	}
	return response.StatusCode, response.Body.Close()
}

// runSilentPod creates the pod and its node in a member until the test ends.
func runSilentPod(t *testing.T, member *controlplane.ControlPlane, namespace string) {
	t.Helper()
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(holdStream))
	serving, err := member.Serving("silent-kubelet")
	check(t, err)
	pair, err := tls.LoadX509KeyPair(serving.CertFile, serving.KeyFile)
	check(t, err)
	kubelet.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	kubelet.StartTLS()
	t.Cleanup(func() {
		kubelet.CloseClientConnections()
		kubelet.Close()
	})
	config, err := member.AdminConfig()
	check(t, err)
	client := clientFor(t, config)
	createSilentNode(t, client, kubelet.Listener.Addr().(*net.TCPAddr).Port)
	_, err = client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: silent},
		Spec:       corev1.PodSpec{NodeName: silent, Containers: []corev1.Container{{Name: "main", Image: "simulated"}}},
	}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		now := int64(0)
		check(t, client.CoreV1().Pods(namespace).Delete(context.Background(), silent, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	})
}

// createSilentNode creates a node with a kubelet at a port of this machine. It is ready from the start, so that kwok leaves its status alone,
// and nothing is scheduled there.
func createSilentNode(t *testing.T, client kubernetes.Interface, port int) {
	t.Helper()
	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: silent},
		Spec:       corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}}, //nolint:gosec // a port fits
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { check(t, client.CoreV1().Nodes().Delete(context.Background(), silent, metav1.DeleteOptions{})) })
}

// holdStream sends a header and then nothing, until the client leaves.
func holdStream(w http.ResponseWriter, r *http.Request) {
	protocol := r.Header.Get("Upgrade")
	if protocol == "" {
		_ = http.NewResponseController(w).Flush() // a client that has left ends the context
		<-r.Context().Done()
		return
	}
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: %s\r\n\r\n",
		protocol, r.Header.Get("X-Stream-Protocol-Version"))
	_, _ = io.Copy(io.Discard, connection) // until the client leaves
}
