package rebalance

import (
	"context"
	"errors"
	"net"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// TestReaderWaits has an API server accept a request and not answer. A second caller that waits for the mapper can be
// cancelled: the cell may have been declared failed meanwhile.
func TestReaderWaits(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed with the test
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan net.Conn, 10)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				close(asked)
				return
			}
			asked <- connection
		}
	}()
	r, err := newReader("cell-a", &rest.Config{Host: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	object := &cellstore.Object{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "shop", Name: "a"}
	first := make(chan error, 1)
	go func() {
		_, err := r.path(context.Background(), object)
		first <- err
	}()
	hanging := <-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.path(ctx, object); !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled caller got %v", err)
	}
	_ = listener.Close()
	_ = hanging.Close()
	for connection := range asked {
		_ = connection.Close()
	}
	if err := <-first; err == nil {
		t.Error("a request without an answer succeeded")
	}
}
