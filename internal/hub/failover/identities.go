package failover

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/membership"
)

// Identities reconciles the identities of cells in members: cells of the topology have one in every member, cells
// that have left have none. Identities are granted and revoked when a cell joins or fails; this handles members that
// were unreachable then. It does the same for the rights of engines on the hub, which others may grant by accident.
type Identities struct {
	// Hub is the configuration of the hub's clients. Client reads the hub from a cache, Fresh without one.
	Hub    *rest.Config
	Client client.Reader
	Fresh  client.Reader
}

const (
	// identitiesInterval is how often identities are reconciled.
	identitiesInterval = 20 * time.Second
	// identityTimeout is how long one member may take.
	identityTimeout = 15 * time.Second
	// identityWorkers is how many members are changed concurrently.
	identityWorkers = 16
)

// Run reconciles identities until the context ends.
func (s *Identities) Run(ctx context.Context) error {
	ticker := time.NewTicker(identitiesInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := s.reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("reconciling the identities of cells in members failed", "err", err.Error())
		}
	}
}

// reconcile grants and revokes identities once.
func (s *Identities) reconcile(ctx context.Context) error {
	var members clusterv1alpha1.ClusterList
	if err := s.Client.List(ctx, &members); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	var secrets metav1.PartialObjectMetadataList
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := s.Client.List(ctx, &secrets, client.InNamespace(names.ClusterNamespace)); err != nil {
		return fmt.Errorf("listing credentials: %w", err)
	}
	var known cellplanev1alpha1.CellList
	if err := s.Client.List(ctx, &known); err != nil {
		return fmt.Errorf("listing cells: %w", err)
	}
	// The topology is read last: a cell that has an identity by now was added to the topology before.
	var topology cellplanev1alpha1.CellTopology
	if err := s.Fresh.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology); err != nil {
		return fmt.Errorf("reading the topology: %w", err)
	}
	rights, err := newHubRights(s.Hub)
	if err == nil {
		err = rights.reconcile(ctx, &topology.Spec, known.Items)
	}
	if err != nil {
		klog.FromContext(ctx).Info("rights of cells on the hub cannot be changed yet", "err", err.Error())
	}
	present := map[string]bool{}
	for i := range secrets.Items {
		present[secrets.Items[i].Name] = true
	}
	var group errgroup.Group
	group.SetLimit(identityWorkers)
	for _, d := range differences(&topology.Spec, known.Items, members.Items, present) {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, identityTimeout)
			defer cancel()
			if err := d.apply(limited, s.Hub); err != nil {
				klog.FromContext(ctx).V(1).Info("identity of a cell in a member cannot be changed yet", "cell", d.cell, "cluster", d.cluster, "grant", d.grant, "err", err.Error())
				return nil
			}
			klog.FromContext(ctx).Info("changed the identity of a cell in a member", "cell", d.cell, "cluster", d.cluster, "granted", d.grant)
			return nil
		})
	}
	return group.Wait()
}

// difference is an identity to grant or to revoke.
type difference struct {
	cluster, cell string
	grant         bool
}

func (d difference) apply(ctx context.Context, hub *rest.Config) error {
	if d.grant {
		return membership.Grant(ctx, hub, d.cluster, d.cell)
	}
	return revoke(ctx, hub, d.cell, d.cluster)
}

// differences compares the cells that should have an identity with the credentials that are present. Failed cells are
// left out: a takeover revokes their identities, and they get them back when they return, after they were emptied.
func differences(topology *cellplanev1alpha1.CellTopologySpec, cells []cellplanev1alpha1.Cell, members []clusterv1alpha1.Cluster, present map[string]bool) []difference {
	listed := map[string]cellplanev1alpha1.CellState{}
	for _, cell := range topology.Cells {
		listed[cell.Name] = cell.State
	}
	var all []difference
	for i := range cells {
		name := cells[i].Name
		state, member := listed[name]
		if state == cellplanev1alpha1.CellStateFailed || (member && awaitsReturn(&cells[i])) {
			continue
		}
		for j := range members {
			cluster := &members[j]
			if cluster.DeletionTimestamp != nil || cluster.Spec.SyncMode == clusterv1alpha1.Pull || !joined(cluster, present) {
				continue
			}
			if has := present[membership.SecretName(cluster.Name, name)]; has != member {
				all = append(all, difference{cluster: cluster.Name, cell: name, grant: member})
			}
		}
	}
	return all
}

// joined reports whether a cluster has an identity per cell. A cluster that was registered by other means has one set
// of credentials for all.
func joined(cluster *clusterv1alpha1.Cluster, present map[string]bool) bool {
	return present[membership.SecretName(cluster.Name, membership.HubEngine)]
}
