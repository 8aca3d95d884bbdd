package cellconn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
)

// Cell is the connections to one cell. The pool closes them.
type Cell struct {
	name  string
	api   *apiServer
	store *store
}

// errClosed is what a method returns that would open a connection after the pool has closed it.
var errClosed = errors.New("the connection is closed because the Cell or its Secret has changed")

// Config returns the client configuration for the cell's API server, as the hub manager. It is the same pointer as before unless the
// endpoint or its credentials have changed. It must not be modified.
//
// The hub manager is a member of system:masters there: a cell's own RBAC is empty until the hub manager has copied the hub's.
func (c *Cell) Config() (*rest.Config, error) {
	c.api.mu.Lock()
	defer c.api.mu.Unlock()
	if err := c.api.prepare(); err != nil {
		return nil, err
	}
	return c.api.config, nil
}

// Client returns a client for the cell's API server.
func (c *Cell) Client() (client.Client, error) {
	a := c.api
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.prepare(); err != nil {
		return nil, err
	}
	if a.client == nil {
		made, err := client.New(a.config, client.Options{HTTPClient: a.http, Scheme: a.scheme})
		if err != nil {
			return nil, fmt.Errorf("preparing to reach cell %s: %w", c.name, err)
		}
		a.client = made
	}
	return a.client, nil
}

// Fence returns the fence of the cell.
func (c *Cell) Fence() (*fence.Cell, error) {
	a := c.api
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.prepare(); err != nil {
		return nil, err
	}
	if a.fence == nil {
		made, err := fence.Connect(c.name, fleet.CellEndpoint(a.cell, a.secret))
		if err != nil {
			return nil, err
		}
		a.fence = made
	}
	return a.fence, nil
}

// Store returns the connection to the cell's store. The caller must not close it. If the keys for encryption at rest are not known, only what
// needs them fails.
func (c *Cell) Store() (*cellstore.Store, error) {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, fmt.Errorf("cell %s: %w", c.name, errClosed)
	case s.secret.UID == "":
		return nil, fmt.Errorf("there is no Secret %s/%s with the credentials for the store of cell %s", s.secret.Namespace, s.secret.Name, c.name)
	case s.open == nil:
		keys := keysOf(s.cell, s.encryption)
		opened, err := cellstore.Open(s.cell, s.secret)
		if err != nil {
			return nil, err
		}
		if keys != nil {
			keys.SetProbe(s.probe(opened))
			opened.Encrypt(keys, s.cell.Spec.Etcd.Encryption.AllowUnencryptedCopies)
		}
		s.open = opened
	}
	return s.open, nil
}

// Answers reports whether the cell's store or its API server answers.
func (c *Cell) Answers(ctx context.Context) bool {
	if store, err := c.Store(); err == nil {
		if _, err := store.Revision(ctx); err == nil {
			return true
		}
	}
	fence, err := c.Fence()
	if err != nil {
		return false
	}
	_, err = fence.Floor(ctx)
	return err == nil
}

// closeExcept closes what the successor does not use.
func (c *Cell) closeExcept(successor *Cell) {
	if c.api != successor.api {
		c.api.close()
	}
	if c.store != successor.store {
		c.store.close()
	}
}

// apiServer is what leads to a cell's API server.
type apiServer struct {
	cell   *cellplanev1alpha1.Cell
	secret *corev1.Secret // without a UID if there is none
	scheme *runtime.Scheme

	mu     sync.Mutex
	closed bool
	config *rest.Config
	http   *http.Client
	client client.Client
	fence  *fence.Cell
}

// prepare makes the configuration. The caller holds the lock.
func (a *apiServer) prepare() error {
	switch {
	case a.closed:
		return fmt.Errorf("cell %s: %w", a.cell.Name, errClosed)
	case a.config != nil:
		return nil
	case a.secret.UID == "":
		return fmt.Errorf("there is no Secret %s/%s with the credentials of cell %s", a.secret.Namespace, a.secret.Name, a.cell.Name)
	}
	if err := fleet.CheckSecret(a.secret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey); err != nil {
		return fmt.Errorf("preparing to reach cell %s: %w", a.cell.Name, err)
	}
	config := fleet.CellEndpoint(a.cell, a.secret).Config(fence.Mover, []string{user.SystemPrivilegedGroup}, nil)
	made, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("preparing to reach cell %s: %w", a.cell.Name, err)
	}
	a.config, a.http = config, made
	return nil
}

// close closes idle connections; those in use are closed after their requests.
func (a *apiServer) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.http != nil {
		utilnet.CloseIdleConnectionsFor(a.http.Transport) // the fence shares the transport
	}
}

// store is what leads to a cell's store.
type store struct {
	cell   *cellplanev1alpha1.Cell
	secret *corev1.Secret // without a UID if there is none
	// encryption is the Secret with the keys; nil if the Cell names none.
	encryption *corev1.Secret
	// probe returns how API servers are asked for what they encrypt with.
	probe func(*cellstore.Store) atrest.Probe

	mu     sync.Mutex
	closed bool
	open   *cellstore.Store
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.open != nil {
		_ = s.open.Close() // it fails only if it is closed already
	}
}
