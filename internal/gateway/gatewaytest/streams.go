package gatewaytest

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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/cellplane/cellplane/internal/testenv"
)

// Pod is a pod of a member that runs on one of its simulated nodes.
type Pod struct {
	// Namespace and Name identify it.
	Namespace, Name string
	// Log is the file from which the simulated nodes read the output of all pods.
	Log string
}

// CheckStreams uses a pod by every streaming protocol: watch, logs -f, and exec, attach and port-forward over SPDY and WebSocket.
func CheckStreams(t *testing.T, config *rest.Config, pod Pod) {
	t.Helper()
	client := clientFor(t, config)
	t.Run("Watch", func(t *testing.T) { pod.checkWatchHeader(t, client) })
	t.Run("Logs", func(t *testing.T) { pod.checkLogs(t, client) })
	for name, executor := range map[string]func(*url.URL) (remotecommand.Executor, error){
		"SPDY": func(to *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(config, http.MethodPost, to)
		},
		"WebSocket": func(to *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(config, http.MethodGet, to.String())
		},
	} {
		t.Run("Exec over "+name, func(t *testing.T) {
			options := &corev1.PodExecOptions{Container: "main", Command: []string{"sh", "-c", "read line; echo $line; echo problem >&2"}, Stdin: true, Stdout: true, Stderr: true}
			command, err := executor(pod.at(client, "exec", options))
			check(t, err)
			checkCommand(t, command)
		})
		t.Run("Attach over "+name, func(t *testing.T) {
			attached, err := executor(pod.at(client, "attach", &corev1.PodAttachOptions{Container: "main", Stdout: true}))
			check(t, err)
			pod.checkAttached(t, attached)
		})
	}
	to := pod.at(client, "portforward", nil)
	t.Run("PortForward over SPDY", func(t *testing.T) {
		transport, upgrader, err := spdy.RoundTripperFor(config)
		check(t, err)
		dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
		checkForwarded(t, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(dialer, anyPort, stop, ready, io.Discard, io.Discard)
		})
	})
	t.Run("PortForward over WebSocket", func(t *testing.T) {
		dialer, err := portforward.NewSPDYOverWebsocketDialer(to, config)
		check(t, err)
		checkForwarded(t, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.New(dialer, anyPort, stop, ready, io.Discard, io.Discard)
		})
	})
}

// anyPort forwards a free local port to a port of the pod.
var anyPort = []string{"0:8080"}

// at returns the URL of a subresource.
func (p Pod) at(client kubernetes.Interface, subresource string, options runtime.Object) *url.URL {
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource(subresource)
	if options != nil {
		request = request.VersionedParams(options, scheme.ParameterCodec)
	}
	return request.URL()
}

// say writes a line of output for all pods of the member.
func (p Pod) say(t testing.TB, text string) {
	t.Helper()
	log, err := os.OpenFile(p.Log, os.O_APPEND|os.O_WRONLY, 0o600)
	check(t, err)
	defer log.Close()
	_, err = log.WriteString("2026-01-02T03:04:05.000000006Z stdout F " + text + "\n")
	check(t, err)
}

// checkWatchHeader opens a watch without events: the header arrives at once, as with an API server.
func (p Pod) checkWatchHeader(t *testing.T, client kubernetes.Interface) {
	ctx, cancel := context.WithTimeout(t.Context(), headerTimeout)
	defer cancel()
	stream, err := client.CoreV1().RESTClient().Get().Namespace(p.Namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{Watch: true, LabelSelector: "nothing=has-this"}, scheme.ParameterCodec).Stream(ctx)
	check(t, err)
	check(t, stream.Close())
}

// headerTimeout is how long a header may take on a slow machine.
const headerTimeout = 30 * time.Second

// checkLogs follows the log: lines that are written later arrive.
func (p Pod) checkLogs(t *testing.T, client kubernetes.Interface) {
	p.say(t, "hello")
	stream, err := client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	check(t, err)
	defer stream.Close()
	lines := bufio.NewReader(stream)
	for _, want := range []string{"hello", "and on"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("read %q, %v; want %q", line, err, want)
		}
		p.say(t, "and on") // after the first line was read, so the next one is streamed
	}
}

func checkCommand(t *testing.T, command remotecommand.Executor) {
	t.Helper()
	var out, problems bytes.Buffer
	err := command.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("there and back\n"), Stdout: &out, Stderr: &problems})
	if err != nil || out.String() != "there and back\n" || problems.String() != "problem\n" {
		t.Errorf("the command wrote %q and %q and ended with %v", out.String(), problems.String(), err)
	}
}

func (p Pod) checkAttached(t *testing.T, attached remotecommand.Executor) {
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
	// Only output after the attachment arrives, and its time is not known.
	testenv.Eventually(t, "output of the pod arrives", func(context.Context) (bool, error) {
		p.say(t, "attached")
		select {
		case line := <-said:
			if line != "attached\n" {
				t.Errorf("the pod wrote %q", line)
			}
			return true, nil
		case err := <-ended:
			t.Fatalf("the stream ended: %v", err)
		default:
		}
		return false, nil
	})
}

// checkForwarded sends a line to a port of a pod, which echoes it.
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
		t.Fatalf("the port was not forwarded: %v", err)
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
