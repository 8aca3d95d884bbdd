package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
)

// UserName is who the hub manager is in a cell. A cell's own RBAC is empty until the hub manager fills it, so that it
// comes as one of the masters: who has the certificate of the authenticating proxy may name anybody.
const UserName = fence.Mover

// CellConfig returns a client configuration for a cell, from its Cell and the Secret with its credentials.
func CellConfig(cell *cellplanev1alpha1.Cell, credentials *corev1.Secret) (*rest.Config, error) {
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		if len(credentials.Data[key]) == 0 {
			return nil, fmt.Errorf("the Secret %s/%s has no %s", credentials.Namespace, credentials.Name, key)
		}
	}
	config := &rest.Config{
		Host:      cell.Spec.Endpoint.Server,
		UserAgent: rest.DefaultKubernetesUserAgent(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:     cell.Spec.Endpoint.CABundle,
			ServerName: cell.Spec.Endpoint.ServerName,
			CertData:   credentials.Data[corev1.TLSCertKey],
			KeyData:    credentials.Data[corev1.TLSPrivateKeyKey],
		},
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(UserName, "", []string{user.SystemPrivilegedGroup}, nil, next)
	})
	return config, nil
}

// prepareCell lets a cell serve what gateways forward, and refuse what it must not.
func prepareCell(ctx context.Context, _ string, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := fence.Install(ctx, client); err != nil {
		return err
	}
	return fleet.GrantGateways(ctx, client)
}

// cells follows the Cells of the hub.
type cells struct {
	client  client.Client // cached
	secrets client.Reader
	set     func(name string, config *rest.Config) error
	remove  func(name string)

	mu    sync.Mutex
	known map[string]*knownCell
}

// knownCell is a cell as it was last seen.
type knownCell struct {
	spec        cellplanev1alpha1.CellSpec
	credentials map[string][]byte
	client      client.Client
	problem     error // why it cannot be connected to
}

func (c *cells) add(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("cells").
		For(&cellplanev1alpha1.Cell{}).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.usersOf)).
		Complete(c)
}

// usersOf returns the cells whose credentials a Secret holds.
func (c *cells) usersOf(ctx context.Context, secret client.Object) []reconcile.Request {
	var all cellplanev1alpha1.CellList
	if err := c.client.List(ctx, &all); err != nil {
		return nil // the cache returns no errors once it runs
	}
	var users []reconcile.Request
	for i := range all.Items {
		ref := all.Items[i].Spec.Credentials.SecretRef
		if ref.Namespace == secret.GetNamespace() && ref.Name == secret.GetName() {
			users = append(users, reconcile.Request{NamespacedName: types.NamespacedName{Name: all.Items[i].Name}})
		}
	}
	return users
}

// Reconcile connects to a cell, anew if what leads to it has changed.
func (c *cells) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var cell cellplanev1alpha1.Cell
	err := c.client.Get(ctx, request.NamespacedName, &cell)
	if apierrors.IsNotFound(err) {
		c.forget(request.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	var credentials corev1.Secret
	ref := cell.Spec.Credentials.SecretRef
	err = c.secrets.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &credentials)
	switch {
	case apierrors.IsNotFound(err):
		c.disconnect(&cell, fmt.Errorf("there is no Secret %s/%s with its credentials", ref.Namespace, ref.Name))
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading the credentials of cell %s: %w", cell.Name, err)
	}
	c.connect(&cell, &credentials)
	return reconcile.Result{}, nil
}

// connect starts to use a cell. If that cannot be done it is tried again when the Cell or the Secret changes.
func (c *cells) connect(cell *cellplanev1alpha1.Cell, credentials *corev1.Secret) {
	c.mu.Lock()
	known := c.known[cell.Name]
	c.mu.Unlock()
	if known != nil && known.problem == nil && reflect.DeepEqual(known.spec, cell.Spec) && reflect.DeepEqual(known.credentials, credentials.Data) {
		return
	}
	config, err := CellConfig(cell, credentials)
	if err != nil {
		c.disconnect(cell, err)
		return
	}
	works, err := client.New(config, client.Options{Scheme: c.client.Scheme()})
	if err != nil {
		c.disconnect(cell, err)
		return
	}
	if err := c.set(cell.Name, config); err != nil {
		c.disconnect(cell, err)
		return
	}
	c.note(cell.Name, &knownCell{spec: *cell.Spec.DeepCopy(), credentials: credentials.Data, client: works})
}

// disconnect stops using a cell that cannot be reached as it is described.
func (c *cells) disconnect(cell *cellplanev1alpha1.Cell, problem error) {
	c.remove(cell.Name)
	c.note(cell.Name, &knownCell{problem: problem})
}

func (c *cells) note(name string, known *knownCell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[name] = known
}

func (c *cells) forget(name string) {
	c.remove(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, name)
}

// problem returns why a cell cannot be connected to, and nil if it can or is not known.
func (c *cells) problem(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.known[name]; known != nil {
		return known.problem
	}
	return nil
}

// reachable returns clients for the cells that can be connected to.
func (c *cells) reachable(context.Context) map[string]client.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	clients := make(map[string]client.Client, len(c.known))
	for name, cell := range c.known {
		if cell.client != nil {
			clients[name] = cell.client
		}
	}
	return clients
}

// clients returns clients for all cells, or says which one there is none for.
func (c *cells) clients(ctx context.Context) (map[string]client.Client, error) {
	var all cellplanev1alpha1.CellList
	if err := c.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing cells: %w", err)
	}
	c.mu.Lock()
	known := maps.Clone(c.known)
	c.mu.Unlock()
	clients := make(map[string]client.Client, len(all.Items))
	var errs []error
	for i := range all.Items {
		name := all.Items[i].Name
		cell := known[name]
		switch {
		case cell == nil:
			errs = append(errs, fmt.Errorf("cell %s: it is not connected yet", name))
		case cell.problem != nil:
			errs = append(errs, fmt.Errorf("cell %s: %w", name, cell.problem))
		default:
			clients[name] = cell.client
		}
	}
	return clients, errors.Join(errs...)
}
