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

// Identities sees to it that the cells of the topology have identities in all members, and that cells which have left have none. Both
// are done when a cell joins or fails; a member that could not be reached then is made up for here.
type Identities struct {
	// Hub leads to the hub. Client reads it by a cache, and Fresh without.
	Hub    *rest.Config
	Client client.Reader
	Fresh  client.Reader
}

const (
	// identitiesInterval is how often members that could not be reached are tried again.
	identitiesInterval = 20 * time.Second
	// identityWithin is how long one member may take.
	identityWithin = 15 * time.Second
	// identitiesAtOnce is how many members are asked at a time.
	identitiesAtOnce = 16
)

// Run works until the context ends.
func (s *Identities) Run(ctx context.Context) error {
	ticker := time.NewTicker(identitiesInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := s.see(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("Looking after the identities of cells in members failed", "reason", err.Error())
		}
	}
}

// see does what is missing, once.
func (s *Identities) see(ctx context.Context) error {
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
	// The topology is read last: whoever has an identity by now had been in it before.
	var topology cellplanev1alpha1.CellTopology
	if err := s.Fresh.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology); err != nil {
		return fmt.Errorf("reading the topology: %w", err)
	}
	present := map[string]bool{}
	for i := range secrets.Items {
		present[secrets.Items[i].Name] = true
	}
	var group errgroup.Group
	group.SetLimit(identitiesAtOnce)
	for _, l := range lacking(&topology.Spec, known.Items, members.Items, present) {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, identityWithin)
			defer cancel()
			if err := l.makeUp(limited, s.Hub); err != nil {
				klog.FromContext(ctx).V(1).Info("An identity cannot be made up for yet", "cell", l.cell, "cluster", l.cluster, "reason", err.Error())
				return nil
			}
			klog.FromContext(ctx).Info("Made up for an identity", "cell", l.cell, "cluster", l.cluster, "granted", l.grant)
			return nil
		})
	}
	return group.Wait()
}

// lack is an identity that is missing, or one too many.
type lack struct {
	cluster, cell string
	grant         bool
}

func (l lack) makeUp(ctx context.Context, hub *rest.Config) error {
	if l.grant {
		return membership.Grant(ctx, hub, l.cluster, l.cell)
	}
	return revoke(ctx, hub, l.cell, l.cluster)
}

// lacking compares who should have an identity with the credentials that are present. Failed cells are not among them: they lose
// theirs by being taken over, and get them when they return.
func lacking(topology *cellplanev1alpha1.CellTopologySpec, cells []cellplanev1alpha1.Cell, members []clusterv1alpha1.Cluster, present map[string]bool) []lack {
	listed := map[string]cellplanev1alpha1.CellState{}
	for _, cell := range topology.Cells {
		listed[cell.Name] = cell.State
	}
	var all []lack
	for i := range cells {
		name := cells[i].Name
		state, member := listed[name]
		if state == cellplanev1alpha1.CellStateFailed {
			continue
		}
		for j := range members {
			cluster := &members[j]
			if cluster.DeletionTimestamp != nil || cluster.Spec.SyncMode == clusterv1alpha1.Pull || !joined(cluster, present) {
				continue
			}
			if has := present[membership.SecretName(cluster.Name, name)]; has != member {
				all = append(all, lack{cluster: cluster.Name, cell: name, grant: member})
			}
		}
	}
	return all
}

// joined reports whether a cluster gives identities out. One that others have made a member has a single set of credentials for all.
func joined(cluster *clusterv1alpha1.Cluster, present map[string]bool) bool {
	return present[membership.SecretName(cluster.Name, membership.HubEngine)]
}
