package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testStreams looks into a pod of a member through clusters/proxy by every protocol that clients have.
func testStreams(t *testing.T, member *controlplane.ControlPlane, config *rest.Config) {
	client := clientFor(t, config)
	pod := runPod(t, client)
	t.Run("Logs", func(t *testing.T) { testLogs(t, member, client, pod) })
	for name, executor := range map[string]func(*rest.Config, string, *url.URL) (remotecommand.Executor, error){
		"SPDY":      remotecommand.NewSPDYExecutor,
		"WebSocket": webSocketExecutor,
	} {
		open := func(t *testing.T, subresource string, options any) remotecommand.Executor {
			t.Helper()
			request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource(subresource)
			switch o := options.(type) {
			case *corev1.PodExecOptions:
				request = request.VersionedParams(o, scheme.ParameterCodec)
			case *corev1.PodAttachOptions:
				request = request.VersionedParams(o, scheme.ParameterCodec)
			}
			opened, err := executor(config, http.MethodPost, request.URL())
			if err != nil {
				t.Fatal(err)
			}
			return opened
		}
		t.Run("Exec over "+name, func(t *testing.T) {
			var out, problems bytes.Buffer
			err := open(t, "exec", &corev1.PodExecOptions{Container: "main", Command: []string{"sh", "-c", "read line; echo $line; echo problem >&2"}, Stdin: true, Stdout: true, Stderr: true}).
				StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("through the gateway\n"), Stdout: &out, Stderr: &problems})
			if err != nil {
				t.Errorf("the command ended with %v", err)
			}
			if out.String() != "through the gateway\n" || problems.String() != "problem\n" {
				t.Errorf("the command said %q and %q", out.String(), problems.String())
			}
		})
		t.Run("Attach over "+name, func(t *testing.T) {
			reader, writer := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			attached := open(t, "attach", &corev1.PodAttachOptions{Container: "main", Stdout: true})
			ended := make(chan error, 1)
			go func() {
				ended <- attached.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: writer})
				writer.Close()
			}()
			// What the pod says from now on arrives, and nobody knows when now is.
			said := make(chan string, 1)
			go func() {
				line, _ := bufio.NewReader(reader).ReadString('\n')
				said <- line
			}()
			testenv.Eventually(t, "what the pod says arrives", func(context.Context) (bool, error) {
				say(t, member, "attached")
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
		})
	}
	forward := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	t.Run("PortForward over SPDY", func(t *testing.T) {
		transport, upgrader, err := spdy.RoundTripperFor(config)
		if err != nil {
			t.Fatal(err)
		}
		dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, forward)
		testPortForward(t, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		})
	})
	t.Run("PortForward over WebSocket", func(t *testing.T) {
		dialer, err := portforward.NewSPDYOverWebsocketDialer(forward, config)
		if err != nil {
			t.Fatal(err)
		}
		testPortForward(t, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		})
	})
}

func webSocketExecutor(config *rest.Config, _ string, to *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutor(config, http.MethodGet, to.String())
}

// runPod makes a pod and waits until it runs.
func runPod(t *testing.T, client kubernetes.Interface) *corev1.Pod {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	testenv.Eventually(t, "there is a service account for pods", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	if _, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "looked-into"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "simulated"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var pod *corev1.Pod
	testenv.Eventually(t, "the pod runs", func(ctx context.Context) (_ bool, err error) {
		pod, err = pods.Get(ctx, "looked-into", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	return pod
}

// say lets the pods of a member say something.
func say(t *testing.T, member *controlplane.ControlPlane, text string) {
	t.Helper()
	log, err := os.OpenFile(member.PodLog(), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.WriteString("2026-01-02T03:04:05.000000006Z stdout F " + text + "\n"); err != nil {
		t.Fatal(err)
	}
}

func testLogs(t *testing.T, member *controlplane.ControlPlane, client kubernetes.Interface, pod *corev1.Pod) {
	say(t, member, "hello")
	stream, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	lines := bufio.NewReader(stream)
	for _, want := range []string{"hello", "and on"} {
		line, err := lines.ReadString('\n')
		if err != nil || line != want+"\n" {
			t.Fatalf("read %q, %v; want %q", line, err, want)
		}
		say(t, member, "and on") // only now, so that what comes next is a stream
	}
}

func testPortForward(t *testing.T, open func(stop, ready chan struct{}) (*portforward.PortForwarder, error)) {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := open(stop, ready)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("there and back\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(connection).ReadString('\n'); err != nil || line != "there and back\n" {
		t.Errorf("%q came back: %v", line, err)
	}
}
