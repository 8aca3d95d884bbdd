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
	"github.com/cellplane/cellplane/internal/slots"
)

// Controller takes the topology from one stable state to the next.
type Controller struct {
	// Hub reads and writes the hub; reads may be cached. HubConfig leads there too.
	Hub       client.Client
	HubConfig *rest.Config
	// Fresh reads the hub uncached.
	Fresh client.Reader
	// Events are about the topology. It may be nil.
	Events events.EventRecorder
	// Cells lead to the cells.
	Cells *Connections
	// Term is that of the hub manager.
	Term cellstore.Term
	// Takeover promotes the backups of a failed cell. It may be repeated. Nil means that there are none.
	Takeover func(ctx context.Context, topology *slots.Map, failed string) error
	// Admit prepares a cell that joins, before anything is stored in it. Nil means that nothing is to be done.
	Admit func(ctx context.Context, topology *slots.Map, cell string) error
	// Grant gives a cell an identity in a member. Nil means that of package membership.
	Grant func(ctx context.Context, cluster, cell string) error
	// Follow is called with each topology that is to be followed from now on. It may be nil.
	Follow func(*slots.Map)
}

const (
	// pollInterval is how often the cached topology is looked at.
	pollInterval = 100 * time.Millisecond
	// attemptInterval is how long a change waits when something stands in its way.
	attemptInterval = 2 * time.Second
	// publishInterval is how often the progress of a move is written down.
	publishInterval = 500 * time.Millisecond
)

// Run follows the topology until the context ends, or another hub manager has taken over.
func (c *Controller) Run(ctx context.Context) error {
	var done int64
	for {
		topology, err := c.next(ctx, done)
		if err != nil {
			return nil //nolint:nilerr // being told to stop is no error
		}
		done = topology.Generation
		if err := c.during(ctx, topology); err != nil {
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

// during works on one epoch until it is over. What goes wrong is told and tried again.
func (c *Controller) during(ctx context.Context, topology *cellplanev1alpha1.CellTopology) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = c.next(ctx, topology.Generation)
	}()
	logger := klog.FromContext(ctx).WithValues("epoch", topology.Generation)
	var last string
	for {
		err := c.work(klog.NewContext(ctx, logger), topology)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, cellstore.ErrDeposed):
			return err
		case err == nil:
			<-ctx.Done()
			return nil
		}
		attempts.Inc()
		if err.Error() != last {
			logger.Error(err, "The topology cannot be followed; trying again")
			last = err.Error()
			c.blocked(ctx, topology, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(attemptInterval):
		}
	}
}

// work takes one epoch as far as it goes.
func (c *Controller) work(ctx context.Context, topology *cellplanev1alpha1.CellTopology) error {
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
	// 1. Nobody with a lower term writes from here on.
	if err := change.connect(ctx); err != nil {
		return err
	}
	// 2. The former epoch is refused everywhere.
	if err := change.fence(ctx); err != nil {
		return err
	}
	// 3. What moves, moves.
	if change.running() {
		return change.run(ctx)
	}
	// 4. What was left behind goes when its time has come.
	if err := change.settle(ctx); err != nil {
		return err
	}
	return change.cleanUp(ctx)
}

// end edits the topology so that the change is over.
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
	// The version makes sure that it is this topology that ends.
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
