package manager

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellconn"
	topologies "github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/hub/backup"
	cellfailover "github.com/cellplane/cellplane/internal/hub/failover"
	"github.com/cellplane/cellplane/internal/slots"
)

// failover backs cells up into each other and takes over cells that are lost.
type failover struct {
	hub        client.Client
	pool       *cellconn.Pool
	backup     *backup.Controller
	takeover   *cellfailover.Takeover
	identities *cellfailover.Identities
	watchdog   cellfailover.Watchdog
}

// newFailover also sets the hooks of the topology controller.
func newFailover(c *Config, replication *replication, topology *topology) *failover {
	mgr, pool := replication.manager, replication.pool
	f := &failover{
		hub: mgr.GetClient(), pool: pool,
		backup: &backup.Controller{Term: topology.controller.Term, Open: pool.Store},
		takeover: &cellfailover.Takeover{
			Hub: c.Hub, Client: mgr.GetClient(), Fresh: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("hub-manager"), Cells: replication.cells.reachable,
			Fence: pool.Fence, Open: pool.Store, Term: topology.controller.Term, StateDir: c.StateDir,
		},
		identities: &cellfailover.Identities{Hub: c.Hub, Client: mgr.GetClient(), Fresh: mgr.GetAPIReader()},
		watchdog:   cellfailover.Watchdog{After: c.AutoFailoverAfter},
	}
	topology.controller.OnTopology = f.backup.Set
	topology.controller.Takeover = f.takeover.Do
	topology.controller.Admit = f.takeover.Readmit
	return f
}

func (f *failover) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.backup.Run(ctx) })
	group.Go(func() error { return f.backup.Publish(ctx, f.hub) })
	group.Go(func() error { return f.identities.Run(ctx) })
	group.Go(func() error { return f.watch(ctx) })
	return group.Wait()
}

const (
	// checkInterval is how often the cells are checked.
	checkInterval = 5 * time.Second
	// answerTimeout is how long a cell may take to answer.
	answerTimeout = 4 * time.Second
)

// watch checks the cells until ctx ends.
func (f *failover) watch(ctx context.Context) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := f.check(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("checking the cells failed, will retry", "err", err)
		}
	}
}

// check fences failed cells in members that were unreachable when the cell failed, and fails a cell over if it has not answered for the
// configured time.
func (f *failover) check(ctx context.Context) error {
	topology := &cellplanev1alpha1.CellTopology{}
	if err := f.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, topology); err != nil {
		return err
	}
	compiled, err := topologies.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		return err
	}
	var sighting cellfailover.Sighting
	for i := range compiled.Cells() {
		cell := compiled.Cell(slots.Index(i))
		switch {
		case cell.State == slots.Failed:
			sighting.Failed++
			if err := f.takeover.MakeUp(ctx, cell.Name); err != nil {
				return err
			}
			f.takeover.Hold(ctx, compiled, cell.Name)
		case f.watchdog.After <= 0:
		case f.answers(ctx, cell.Name):
			sighting.Answering = append(sighting.Answering, cell.Name)
		default:
			sighting.Silent = append(sighting.Silent, cell.Name)
		}
	}
	lost := f.watchdog.See(time.Now(), sighting)
	if lost == "" {
		return nil
	}
	klog.FromContext(ctx).Info("failing over a cell that has not answered", "cell", lost, "after", f.watchdog.After)
	if err := topologies.Fail(lost)(&topology.Spec); err != nil {
		return err
	}
	if err := f.hub.Update(ctx, topology); err != nil {
		return fmt.Errorf("marking cell %s as failed: %w", lost, err)
	}
	return nil
}

func (f *failover) answers(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cell, err := f.pool.Get(ctx, name)
	return err == nil && cell.Answers(ctx)
}
