package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// balancer is a TCP load balancer.
type balancer struct {
	net.Listener
	mu      sync.Mutex
	targets []string
	open    map[net.Conn]string
	next    int
}

func newBalancer(t *testing.T, targets ...string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: listener, targets: targets, open: map[net.Conn]string{}}
	go b.serve()
	t.Cleanup(func() { listener.Close() })
	return b
}

func (b *balancer) serve() {
	for {
		client, err := b.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		target := b.targets[b.next%len(b.targets)]
		b.next++
		b.open[client] = target
		b.mu.Unlock()
		go b.pass(client, target)
	}
}

func (b *balancer) pass(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, client); server.Close() }()
	_, _ = io.Copy(client, server)
}

// drop removes a target and closes its connections, as if it had been killed.
func (b *balancer) drop(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, other := range b.targets {
		if other != target {
			left = append(left, other)
		}
	}
	b.targets = left
	for conn, to := range b.open {
		if to == target {
			conn.Close()
		}
	}
}

// testReplicas runs clients over two gateways and kills one: watches resume at the other.
func testReplicas(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "replicas")
	fill(t, w.client, namespace, 20)
	second := gatewaytest.Start(t, w.Federation, nil)
	first := gatewaytest.Start(t, w.Federation, nil)
	b := newBalancer(t, address(first), address(second))
	config := first.Config(t)
	config.Host = "https://" + b.Addr().String()
	config.TLSClientConfig.CAData = append(append([]byte(nil), first.CA()...), second.CA()...)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	informer := informers.NewSharedInformerFactoryWithOptions(clientFor(t, config), 0, informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer()
	go informer.RunWithContext(ctx)
	testenv.Eventually(t, "the informer has synced", func(context.Context) (bool, error) { return informer.HasSynced(), nil })

	var group sync.WaitGroup
	killed := make(chan struct{})
	for worker := range 4 {
		client := clientFor(t, rest.CopyConfig(config)).CoreV1().ConfigMaps(namespace)
		group.Go(func() {
			for i := range 60 {
				if worker == 0 && i == 20 {
					b.drop(address(first))
					close(killed)
				}
				name := fmt.Sprintf("map-%03d", (i+worker)%20)
				if err := retried(func() error {
					if i%3 != 0 {
						_, err := client.Get(ctx, name, metav1.GetOptions{})
						return err
					}
					_, err := client.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"worker-%d":"%d"}}`, worker, i), metav1.PatchOptions{})
					return err
				}); err != nil {
					t.Errorf("request %d for %s: %v", i, name, err)
				}
			}
		})
	}
	group.Wait()
	<-killed
	checkWritten(t, w, namespace)
	if _, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the informer resumes at the other gateway", func(context.Context) (bool, error) {
		_, found, err := informer.GetStore().GetByKey(namespace + "/after")
		return found, err
	})
	if got := len(informer.GetStore().ListKeys()); got != 21 {
		t.Errorf("the informer has %d objects, want 21", got)
	}
}

// checkWritten checks that each object has the last write of each worker.
func checkWritten(t *testing.T, w *world, namespace string) {
	t.Helper()
	list, err := w.client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for worker := range 4 {
		last := map[string]string{}
		for i := 0; i < 60; i += 3 {
			last[fmt.Sprintf("map-%03d", (i+worker)%20)] = fmt.Sprint(i)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if got := object.Data[fmt.Sprintf("worker-%d", worker)]; got != last[object.Name] {
				t.Errorf("worker %d wrote %q to %s, got %q", worker, last[object.Name], object.Name, got)
			}
		}
	}
}

// retried repeats a request once if its connection was cut, as may happen behind any load balancer.
func retried(request func() error) error {
	err := request()
	var network net.Error
	if err != nil && (errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return request()
	}
	return err
}

func address(g *gatewaytest.Gateway) string { return g.URL()[len("https://"):] }
