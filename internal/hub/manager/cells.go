package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellconn"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
)

// prepareCell installs the fence in a cell and grants gateways access to it.
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

// cellController connects the replicator to the Cells of the hub, and reconnects it when a Cell or its credentials change.
type cellController struct {
	client client.Client // cached
	pool   *cellconn.Pool
	set    func(name string, config *rest.Config) error
	remove func(name string)

	mu    sync.Mutex
	state map[string]cellState
}

// cellState is what the replicator was last given for a cell.
type cellState struct {
	config  *rest.Config
	problem error // why it was given none
}

func (c *cellController) add(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("cells").
		For(&cellplanev1alpha1.Cell{}).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.usersOf)).
		Complete(c)
}

// usersOf returns the cells that refer to a Secret.
func (c *cellController) usersOf(ctx context.Context, secret client.Object) []reconcile.Request {
	var all cellplanev1alpha1.CellList
	if err := c.client.List(ctx, &all); err != nil {
		return nil // the cache returns no errors once it runs
	}
	ref := cellplanev1alpha1.SecretReference{Namespace: secret.GetNamespace(), Name: secret.GetName()}
	var users []reconcile.Request
	for i := range all.Items {
		spec := &all.Items[i].Spec
		if spec.Credentials.SecretRef == ref || spec.Etcd.SecretRef == ref || spec.Etcd.Encryption != nil && spec.Etcd.Encryption.SecretRef == ref {
			users = append(users, reconcile.Request{NamespacedName: types.NamespacedName{Name: all.Items[i].Name}})
		}
	}
	return users
}

// Reconcile connects the replicator to a cell. If that is not possible, it happens when the Cell or the Secret changes.
func (c *cellController) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cell, err := c.pool.Get(ctx, request.Name)
	switch {
	case apierrors.IsNotFound(err):
		c.forget(request.Name)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	config, err := cell.Config()
	if err == nil {
		err = c.connect(request.Name, config)
	}
	if err != nil {
		c.remove(request.Name)
		c.note(request.Name, cellState{problem: err})
	}
	return reconcile.Result{}, nil
}

func (c *cellController) connect(name string, config *rest.Config) error {
	c.mu.Lock()
	unchanged := c.state[name].config == config
	c.mu.Unlock()
	if unchanged {
		return nil
	}
	if err := c.set(name, config); err != nil {
		return err
	}
	c.note(name, cellState{config: config})
	return nil
}

func (c *cellController) note(name string, state cellState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state[name] = state
}

func (c *cellController) forget(name string) {
	c.remove(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.state, name)
}

// problem returns why a cell cannot be connected to. It is nil if it can be, or if the cell is unknown.
func (c *cellController) problem(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[name].problem
}

// reachable returns clients for the cells that can be connected to.
func (c *cellController) reachable(ctx context.Context) map[string]client.Client {
	clients, _ := c.clients(ctx, func(string) bool { return true })
	return clients
}

// holders returns clients for the cells that may hold objects of the federation. While the topology changes, that may be any. Otherwise a cell that has failed or is
// not in the topology holds none that counts, and need not answer.
func (c *cellController) holders(ctx context.Context) (map[string]client.Client, error) {
	topology := &cellplanev1alpha1.CellTopology{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, topology); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the topology of the cells: %w", err)
	}
	changing := topology.Status.Phase != cellplanev1alpha1.TopologyStable || topology.Status.ObservedGeneration != topology.Generation
	return c.clients(ctx, func(name string) bool {
		return changing || slices.ContainsFunc(topology.Spec.Cells, func(c cellplanev1alpha1.TopologyCell) bool {
			return c.Name == name && c.State != cellplanev1alpha1.CellStateFailed
		})
	})
}

// clients returns clients for cells. The error names those that cannot be connected to.
func (c *cellController) clients(ctx context.Context, wanted func(cell string) bool) (map[string]client.Client, error) {
	var all cellplanev1alpha1.CellList
	if err := c.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("listing cells: %w", err)
	}
	clients := make(map[string]client.Client, len(all.Items))
	var errs []error
	for i := range all.Items {
		name := all.Items[i].Name
		if !wanted(name) {
			continue
		}
		cell, err := c.pool.Get(ctx, name)
		if err == nil {
			clients[name], err = cell.Client()
		}
		if err != nil {
			delete(clients, name)
			errs = append(errs, err)
		}
	}
	return clients, errors.Join(errs...)
}
