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
	topologies "github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/failover"
	"github.com/cellplane/cellplane/internal/hub/rebalance"
	"github.com/cellplane/cellplane/internal/slots"
)

// safeguarding backs cells up into each other and takes over those that are lost.
type safeguarding struct {
	hub         client.Client
	connections *rebalance.Connections
	backup      *backup.Controller
	takeover    *failover.Takeover
	identities  *failover.Identities
	watchdog    failover.Watchdog
}

// newSafeguarding lets the controller of changes call for what it does.
func newSafeguarding(c *Config, copying *copying, changing *changing) *safeguarding {
	mgr, connections := copying.manager, changing.connections
	s := &safeguarding{
		hub: mgr.GetClient(), connections: connections,
		backup: &backup.Controller{Term: changing.controller.Term, Open: connections.Store},
		takeover: &failover.Takeover{
			Hub: c.Hub, Client: mgr.GetClient(), Fresh: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("hub-manager"), Cells: copying.cells.reachable,
			Fence: connections.Fence, Open: connections.Store, Term: changing.controller.Term, StateDir: c.StateDir,
		},
		identities: &failover.Identities{Hub: c.Hub, Client: mgr.GetClient(), Fresh: mgr.GetAPIReader()},
		watchdog:   failover.Watchdog{After: c.AutoFailoverAfter},
	}
	changing.controller.Follow = s.backup.Set
	changing.controller.Takeover = s.takeover.Do
	changing.controller.Admit = s.takeover.Readmit
	return s
}

func (s *safeguarding) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.backup.Run(ctx) })
	group.Go(func() error { return s.backup.Publish(ctx, s.hub) })
	group.Go(func() error { return s.identities.Run(ctx) })
	group.Go(func() error { return s.lookAround(ctx) })
	return group.Wait()
}

const (
	// lookInterval is how often the cells are looked at.
	lookInterval = 5 * time.Second
	// lookWithin is how long a cell may take to answer.
	lookWithin = 4 * time.Second
)

// lookAround makes up for members that could not be reached when a cell was given up, and gives cells up if that is asked for.
func (s *safeguarding) lookAround(ctx context.Context) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("Looking after the cells failed", "reason", err.Error())
		}
	}
}

func (s *safeguarding) look(ctx context.Context) error {
	topology := &cellplanev1alpha1.CellTopology{}
	if err := s.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, topology); err != nil {
		return err
	}
	compiled, err := topologies.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		return err
	}
	var sighting failover.Sighting
	for i := range compiled.Cells() {
		cell := compiled.Cell(slots.Index(i))
		switch {
		case cell.State == slots.Failed:
			sighting.Failed++
			if err := s.takeover.MakeUp(ctx, cell.Name); err != nil {
				return err
			}
			s.takeover.Hold(ctx, compiled, cell.Name)
		case s.watchdog.After <= 0:
		case s.answers(ctx, cell.Name):
			sighting.Answering = append(sighting.Answering, cell.Name)
		default:
			sighting.Silent = append(sighting.Silent, cell.Name)
		}
	}
	lost := s.watchdog.See(time.Now(), sighting)
	if lost == "" {
		return nil
	}
	klog.FromContext(ctx).Info("A cell has not answered for too long and is given up", "cell", lost, "after", s.watchdog.After)
	if err := topologies.Fail(lost)(&topology.Spec); err != nil {
		return err
	}
	if err := s.hub.Update(ctx, topology); err != nil {
		return fmt.Errorf("giving cell %s up: %w", lost, err)
	}
	return nil
}

// answers reports whether a cell's store or its API server does.
func (s *safeguarding) answers(ctx context.Context, cell string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	if store, err := s.connections.Store(ctx, cell); err == nil {
		if _, err := store.Revision(ctx); err == nil {
			return true
		}
	}
	fence, err := s.connections.Fence(ctx, cell)
	if err != nil {
		return false
	}
	_, err = fence.Floor(ctx)
	return err == nil
}
