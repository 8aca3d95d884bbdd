package rebalance

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/slots"
)

// Controller carries out changes of the topology.
type Controller struct {
	// Hub reads and writes the hub; reads may be cached. HubConfig is for other clients of the hub.
	Hub       client.Client
	HubConfig *rest.Config
	// Fresh reads the hub uncached.
	Fresh client.Reader
	// Events, if not nil, records events about the topology.
	Events events.EventRecorder
	// Cells are the connections to the cells.
	Cells *Connections
	// Term of the hub manager.
	Term cellstore.Term
	// Begin, if not nil, records that a cell has failed, before the epoch is published. It may be repeated.
	Begin func(ctx context.Context, failed string) error
	// Takeover, if not nil, promotes the backups of a failed cell. It may be repeated.
	Takeover func(ctx context.Context, topology *slots.Map, failed string) error
	// Admit, if not nil, prepares a joining cell before anything is stored in it.
	Admit func(ctx context.Context, topology *slots.Map, cell string) error
	// Grant gives a cell an identity in a member. The default is membership.Grant.
	Grant func(ctx context.Context, cluster, cell string) error
	// HubFence, if not nil, is the fence of the hub.
	HubFence *fence.Hub
	// OnTopology, if not nil, is called with each topology that backups have to follow from now on.
	OnTopology func(*slots.Map)
}

const (
	// pollInterval is how often the cached topology is read.
	pollInterval = 100 * time.Millisecond
	// attemptInterval is how long to wait before a failed attempt is repeated.
	attemptInterval = 2 * time.Second
	// publishInterval is how often the progress of a move is published.
	publishInterval = 500 * time.Millisecond
)

// Run carries out changes until the context ends, or another hub manager has taken over.
func (c *Controller) Run(ctx context.Context) error {
	var done int64
	for {
		topology, err := c.next(ctx, done)
		if err != nil {
			return nil //nolint:nilerr // the end of the context is no error
		}
		done = topology.Generation
		if err := c.runEpoch(ctx, topology); err != nil {
			return err
		}
	}
}

// next waits for a topology of another epoch.
func (c *Controller) next(ctx context.Context, epoch int64) (*cellplanev1alpha1.CellTopology, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		var topology cellplanev1alpha1.CellTopology
		err := c.Hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, &topology)
		if err == nil && topology.Generation != epoch && topology.DeletionTimestamp == nil {
			return &topology, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// runEpoch reconciles one epoch until the next begins. Failures are published and retried.
func (c *Controller) runEpoch(ctx context.Context, topology *cellplanev1alpha1.CellTopology) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = c.next(ctx, topology.Generation)
	}()
	logger := klog.FromContext(ctx).WithValues("epoch", topology.Generation)
	var last string
	for {
		err := c.reconcile(klog.NewContext(ctx, logger), topology)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, cellstore.ErrFenced):
			return err
		case err == nil:
			<-ctx.Done()
			return nil
		}
		attempts.Inc()
		if err.Error() != last {
			logger.Error(err, "reconciling the topology failed, retrying")
			last = err.Error()
			c.publishBlocked(ctx, topology, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(attemptInterval):
		}
	}
}

// reconcile takes one epoch through its phases.
func (c *Controller) reconcile(ctx context.Context, topology *cellplanev1alpha1.CellTopology) error {
	if err := c.Fresh.Get(ctx, client.ObjectKeyFromObject(topology), topology); err != nil {
		return fmt.Errorf("reading the topology: %w", err)
	}
	compiled, err := cells.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		return err
	}
	change := &change{Controller: c, topology: topology, compiled: compiled}
	if !change.admitting() {
		change.follow()
	}
	// 1. Publish the owners of all slots: gateways need them before they route by the epoch.
	if err := change.publishOwners(ctx); err != nil {
		return err
	}
	// 2. Reach all cells, and exclude hub managers with a lower term.
	if err := change.connect(ctx); err != nil {
		return err
	}
	// 3. Have all cells refuse the former epoch.
	if err := change.fence(ctx); err != nil {
		return err
	}
	// 4. Move objects. The end of the change is a new epoch.
	if change.running() {
		return change.run(ctx)
	}
	// 5. Publish that nothing moves.
	if err := change.publishStable(ctx); err != nil {
		return err
	}
	// 6. Remove stale copies after the grace period.
	return change.cleanUp(ctx)
}

// end edits the topology to end the change.
func (c *Controller) end(ctx context.Context, topology *cellplanev1alpha1.CellTopology) error {
	ended := topology.DeepCopy()
	var kept []cellplanev1alpha1.TopologyCell
	for _, cell := range ended.Spec.Cells {
		switch {
		case cell.State == cellplanev1alpha1.CellStateOut:
			continue
		case cell.State == cellplanev1alpha1.CellStateIn:
			cell.State = cellplanev1alpha1.CellStateNormal
		case cell.TargetWeight != nil:
			cell.Weight, cell.TargetWeight = *cell.TargetWeight, nil
		}
		kept = append(kept, cell)
	}
	ended.Spec.Cells = kept
	// The update fails if the topology was edited meanwhile.
	err := c.Hub.Update(ctx, ended)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("ending the change: the topology was edited meanwhile: %w", err)
	}
	if err != nil {
		return fmt.Errorf("ending the change: %w", err)
	}
	return nil
}

func now() *metav1.Time {
	t := metav1.Now()
	return &t
}
