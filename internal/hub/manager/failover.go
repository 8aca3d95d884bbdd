package manager

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellconn"
	topologies "github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/eventnote"
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
	// fresh reads the hub uncached, and reports are those of the gateways.
	fresh   client.Reader
	reports cellfailover.Reports
}

// newFailover also sets the hooks of the topology controller.
func newFailover(c *Config, replication *replication, topology *topology) *failover {
	mgr, pool := replication.manager, replication.pool
	f := &failover{
		hub: mgr.GetClient(), pool: pool,
		backup: &backup.Controller{Term: topology.controller.Term, Open: pool.Store},
		takeover: &cellfailover.Takeover{
			Hub: c.Hub, Client: mgr.GetClient(), Fresh: mgr.GetAPIReader(), Events: eventnote.Recorder(mgr.GetEventRecorder("hub-manager")), Cells: replication.cells.reachable,
			Fence: pool.Fence, Open: pool.Store, Term: topology.controller.Term, StateDir: c.StateDir,
		},
		identities: &cellfailover.Identities{Hub: c.Hub, Client: mgr.GetClient(), Fresh: mgr.GetAPIReader()},
		watchdog:   cellfailover.Watchdog{After: c.AutoFailoverAfter},
		fresh:      mgr.GetAPIReader(),
	}
	f.takeover.Copied, f.takeover.Stopped, f.takeover.Follow = f.backup.WaitCopied, f.backup.Stop, f.backup.Set
	f.takeover.Leases = &cellfailover.WriterLeases{
		RaiseHub: topology.controller.HubFence.Raise, InForce: topology.controller.HubFence.InForce, RaiseCell: f.raise,
		Reports: func(ctx context.Context) ([]cellfailover.Report, error) {
			return cellfailover.ReadReports(ctx, f.fresh)
		},
	}
	topology.controller.OnTopology = f.backup.Set
	topology.controller.Begin = f.takeover.Begin
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
	if err := f.takeover.OpenMembers(ctx, compiled); err != nil {
		return err
	}
	var gone []string
	if sighting.Reports, gone, err = f.readReports(ctx); err != nil {
		return err
	}
	if err := f.forget(ctx, gone); err != nil {
		return err
	}
	verdict := f.watchdog.See(time.Now(), sighting)
	if err := f.takeover.PublishBlocked(ctx, compiled, verdict); err != nil {
		return err
	}
	if verdict.Fail == "" {
		return nil
	}
	klog.FromContext(ctx).Info("failing over a cell that has not answered", "cell", verdict.Fail, "after", f.watchdog.After)
	if err := topologies.Fail(verdict.Fail)(&topology.Spec); err != nil {
		return err
	}
	if err := f.hub.Update(ctx, topology); err != nil {
		return fmt.Errorf("marking cell %s as failed: %w", verdict.Fail, err)
	}
	return nil
}

// readReports returns the reports of live gateways, and the names of those that have been gone for long.
func (f *failover) readReports(ctx context.Context) (live []cellfailover.Report, gone []string, err error) {
	all, err := cellfailover.ReadReports(ctx, f.fresh)
	if err != nil {
		return nil, nil, err
	}
	live, gone = f.reports.Live(time.Now(), all)
	return live, gone, nil
}

// forget removes the reports of gateways that are gone.
func (f *failover) forget(ctx context.Context, gone []string) error {
	for _, name := range gone {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}}
		if err := f.hub.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the report of a gateway that is gone: %w", err)
		}
	}
	return nil
}

// raise raises the floor of a cell.
func (f *failover) raise(ctx context.Context, cell string, epoch int64) error {
	fence, err := f.pool.Fence(ctx, cell)
	if err != nil {
		return err
	}
	return fence.RaiseFloor(ctx, epoch)
}

func (f *failover) answers(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cell, err := f.pool.Get(ctx, name)
	return err == nil && cell.Answers(ctx)
}
