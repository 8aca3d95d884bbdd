package manager

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/hub/eventnote"
	"github.com/cellplane/cellplane/internal/hub/rebalance"
)

// topology carries out changes of the cells' topology, and publishes the state of the cells.
type topology struct {
	controller *rebalance.Controller
	observer   *rebalance.Observer
}

func newTopology(ctx context.Context, c *Config, replication *replication) (*topology, error) {
	term, err := c.term(ctx)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.Hub)
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the hub: %w", err)
	}
	mgr := replication.manager
	connections := &rebalance.Connections{Pool: replication.pool}
	return &topology{
		controller: &rebalance.Controller{
			Hub: mgr.GetClient(), HubConfig: c.Hub, Fresh: mgr.GetAPIReader(), Events: eventnote.Recorder(mgr.GetEventRecorder("hub-manager")),
			Cells: connections, Term: term, HubFence: fence.OnHub(client),
		},
		observer: &rebalance.Observer{Hub: mgr.GetClient(), Cells: connections},
	}, nil
}

// term returns the term of this replica's leadership: the resourceVersion of the Lease that it holds. A later leader has a higher one,
// because resource versions only grow.
func (c *Config) term(ctx context.Context) (cellstore.Term, error) {
	client, err := kubernetes.NewForConfig(c.Hub)
	if err != nil {
		return 0, fmt.Errorf("preparing to reach the hub: %w", err)
	}
	lease, err := client.CoordinationV1().Leases(names.SystemNamespace).Get(ctx, LeaseName, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("reading the Lease of the hub manager: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != c.Identity {
		return 0, election.ErrLost
	}
	term, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the resourceVersion of the hub manager's Lease: %w", err)
	}
	return cellstore.Term(term), nil
}
