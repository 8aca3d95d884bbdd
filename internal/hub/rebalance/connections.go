package rebalance

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fence"
)

// Connections lead to the cells of a hub: to their stores, their API servers and their fences. They are made when they are first asked
// for, and anew if a Cell or its Secrets have changed.
type Connections struct {
	// Hub reads Cells, and Secrets reads the Secrets they refer to.
	Hub, Secrets client.Reader
	// Config makes a client configuration for a cell from its credentials.
	Config func(*cellplanev1alpha1.Cell, *corev1.Secret) (*rest.Config, error)

	mu   sync.Mutex
	open map[string]*connection
}

// connection is all that leads to one cell.
type connection struct {
	spec              cellplanev1alpha1.CellSpec
	credentials, etcd map[string][]byte

	store   *cellstore.Store
	fence   *fence.Cell
	config  *rest.Config
	reader  *reader
	legible legible // for whoever works on a change
}

// Store returns the connection to the store of a cell. It is not to be closed.
func (c *Connections) Store(ctx context.Context, cell string) (*cellstore.Store, error) {
	connection, err := c.to(ctx, cell)
	if err != nil {
		return nil, err
	}
	return connection.store, nil
}

// Fence returns the fence of a cell.
func (c *Connections) Fence(ctx context.Context, cell string) (*fence.Cell, error) {
	connection, err := c.to(ctx, cell)
	if err != nil {
		return nil, err
	}
	return connection.fence, nil
}

// Close ends all connections.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, connection := range c.open {
		_ = connection.store.Close() // nothing depends on it any more
	}
	c.open = nil
}

func (c *Connections) to(ctx context.Context, name string) (*connection, error) {
	var cell cellplanev1alpha1.Cell
	if err := c.Hub.Get(ctx, types.NamespacedName{Name: name}, &cell); err != nil {
		return nil, fmt.Errorf("finding the way to cell %s: %w", name, err)
	}
	credentials, err := c.secret(ctx, name, cell.Spec.Credentials.SecretRef)
	if err != nil {
		return nil, err
	}
	etcd, err := c.secret(ctx, name, cell.Spec.Etcd.SecretRef)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[name]; known != nil {
		if reflect.DeepEqual(known.spec, cell.Spec) && reflect.DeepEqual(known.credentials, credentials.Data) && reflect.DeepEqual(known.etcd, etcd.Data) {
			return known, nil
		}
		_ = known.store.Close() // who still uses it gets errors, and asks again
		delete(c.open, name)
	}
	made := &connection{spec: *cell.Spec.DeepCopy(), credentials: credentials.Data, etcd: etcd.Data}
	if made.config, err = c.Config(&cell, credentials); err != nil {
		return nil, fmt.Errorf("preparing to reach cell %s: %w", name, err)
	}
	if made.fence, err = fence.Connect(&cell, credentials); err != nil {
		return nil, err
	}
	if made.reader, err = newReader(name, made.config); err != nil {
		return nil, err
	}
	if made.store, err = cellstore.Open(&cell, etcd); err != nil {
		return nil, err
	}
	if c.open == nil {
		c.open = map[string]*connection{}
	}
	c.open[name] = made
	return made, nil
}

func (c *Connections) secret(ctx context.Context, cell string, ref cellplanev1alpha1.SecretReference) (*corev1.Secret, error) {
	var secret corev1.Secret
	if err := c.Secrets.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &secret); err != nil {
		return nil, fmt.Errorf("reading the Secret %s/%s with the credentials of cell %s: %w", ref.Namespace, ref.Name, cell, err)
	}
	return &secret, nil
}
