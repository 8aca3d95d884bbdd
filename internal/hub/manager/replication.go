package manager

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cellconn"
	"github.com/cellplane/cellplane/internal/hub/eventnote"
	"github.com/cellplane/cellplane/internal/hub/manager/ownership"
	"github.com/cellplane/cellplane/internal/hub/replicate"
	"github.com/cellplane/cellplane/internal/hub/scalerecords"
)

// replication copies the hub's global objects into the cells, and publishes its progress.
type replication struct {
	manager    manager.Manager
	pool       *cellconn.Pool
	replicator *replicate.Replicator
	cells      *cellController
	publisher  *publisher
}

func newReplication(ctx context.Context, c *Config) (*replication, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mgr, err := manager.New(c.Hub, manager.Options{
		Scheme:     scheme,
		Logger:     quiet(ctx),
		Metrics:    metricsserver.Options{BindAddress: "0"}, // the process has one for all of its parts
		Cache:      cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the hub: %w", err)
	}
	r := &replication{manager: mgr, pool: &cellconn.Pool{Hub: mgr.GetClient(), Secrets: mgr.GetAPIReader(), Scheme: scheme}}
	reporter := &reporter{client: mgr.GetClient(), recorder: eventnote.Recorder(mgr.GetEventRecorder("hub-manager"))}
	r.replicator, err = replicate.New(c.Hub, replicate.Options{
		Workers: c.CopyWorkers,
		Prepare: prepareCell,
		Report:  func(cell string, found replicate.Obstacle) { reporter.report(ctx, cell, found) },
	})
	if err != nil {
		return nil, err
	}
	r.cells = &cellController{client: mgr.GetClient(), pool: r.pool, set: r.replicator.SetCell, remove: r.replicator.RemoveCell, state: map[string]cellState{}}
	r.publisher = &publisher{client: mgr.GetClient(), status: r.replicator.Status, problem: r.cells.problem}
	if err := r.cells.add(mgr); err != nil {
		return nil, fmt.Errorf("preparing to watch cells: %w", err)
	}
	if err := ownership.Add(mgr, r.replicator.Released); err != nil {
		return nil, fmt.Errorf("preparing to watch policies: %w", err)
	}
	return r, nil
}

func (r *replication) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.manager.Start(ctx) })
	group.Go(func() error { return r.replicator.Start(ctx) })
	group.Go(func() error { return r.publisher.run(ctx) })
	return group.Wait()
}

// reporter reports objects in cells that are not copies.
type reporter struct {
	client   client.Client
	recorder events.EventRecorder
}

func (r *reporter) report(ctx context.Context, cell string, found replicate.Obstacle) {
	klog.FromContext(ctx).Info("found an object in a cell that is not a copy", "cell", cell, "kind", found.Kind, "object", found.Object, "reason", found.Reason)
	var object cellplanev1alpha1.Cell
	if err := r.client.Get(ctx, types.NamespacedName{Name: cell}, &object); err != nil {
		return // the cell is gone
	}
	kind := corev1.EventTypeNormal
	if !found.Harmless() {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(&object, nil, kind, "ForeignObject", "Copy", "%s %s: %s", found.Kind, found.Object, found.Message)
}

// sweepRecords removes expired records of gateways from the hub and the cells.
func (r *replication) sweepRecords(ctx context.Context) error {
	hub, err := client.New(r.manager.GetConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("preparing to reach the hub: %w", err)
	}
	sweeper := scalerecords.Sweeper{Planes: func(ctx context.Context) map[string]client.Client {
		planes := r.cells.reachable(ctx)
		if planes == nil {
			planes = map[string]client.Client{}
		}
		planes["the hub"] = hub
		return planes
	}}
	return sweeper.Run(ctx)
}
