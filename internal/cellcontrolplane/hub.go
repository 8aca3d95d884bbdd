package cellcontrolplane

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/federate"
	"github.com/cellplane/cellplane/internal/install"
)

// hub is the hub as one reconciliation sees it.
type hub struct {
	client.Client
	cell     *cellplanev1alpha1.Cell         // nil if there is none
	topology *cellplanev1alpha1.CellTopology // nil if there is none
}

// reachHub reads what the hub has of the cell.
func (r *run) reachHub(ctx context.Context, config *federate.Config) (*hub, error) {
	api, err := federate.Hub(ctx, r.Secrets, config)
	if err != nil {
		return nil, fmt.Errorf("the hub: %w", err)
	}
	h := &hub{Client: api, cell: &cellplanev1alpha1.Cell{}, topology: &cellplanev1alpha1.CellTopology{}}
	if err := api.Get(ctx, types.NamespacedName{Name: r.cell}, h.cell); apierrors.IsNotFound(err) {
		h.cell = nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the Cell %s: %w", r.cell, err)
	}
	if err := api.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, h.topology); apierrors.IsNotFound(err) {
		h.topology = nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the topology: %w", err)
	}
	return h, nil
}

// foreign reports whether the Cell on the hub is another one of the same name, at another server.
func (h *hub) foreign(server string) bool {
	return h.cell != nil && h.cell.Spec.Endpoint.Server != server
}

// expect lets a change of cells wait for more API servers. It never lowers their number: they may still run.
func (h *hub) expect(ctx context.Context, apiServers int32) error {
	if h.cell == nil || h.cell.Spec.Endpoint.APIServers >= apiServers {
		return nil
	}
	edited := h.cell.DeepCopy()
	edited.Spec.Endpoint.APIServers = apiServers
	if err := h.Update(ctx, edited); err != nil {
		return fmt.Errorf("telling the hub of %d API servers: %w", apiServers, err)
	}
	h.cell = edited
	return nil
}

// entry returns the entry of the cell in the topology, nil if there is none.
func (r *run) entry(h *hub) *cellplanev1alpha1.TopologyCell {
	if h.topology == nil {
		return nil
	}
	for i := range h.topology.Spec.Cells {
		if cell := &h.topology.Spec.Cells[i]; cell.Name == r.cell {
			return cell
		}
	}
	return nil
}

// progress describes how far the change of the topology is.
func (h *hub) progress() string {
	if change := h.topology.Status.Change; change != nil && change.Epoch == h.topology.Generation {
		return fmt.Sprintf("%d of %d objects have moved.", change.MovedObjects, change.TotalObjects)
	}
	return "The change of the topology begins."
}

// register makes the control plane a cell of the federation. It is repeated when this process has not done it yet, as after an upgrade, and when its
// certificates or the number of API servers have changed.
func (r *run) register(ctx context.Context, wanted *install.Cell, h *hub) error {
	state, err := r.registration(ctx, wanted)
	if err != nil {
		return err
	}
	r.mu.Lock()
	same := r.registered[r.plane.UID] == state
	r.mu.Unlock()
	if same && h.cell != nil {
		return nil
	}
	if err := federate.Register(ctx, r.Secrets, wanted.Config); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.registered == nil {
		r.registered = map[types.UID]string{}
	}
	r.registered[r.plane.UID] = state
	return nil
}
