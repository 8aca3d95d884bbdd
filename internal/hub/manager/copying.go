package manager

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
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
	"github.com/cellplane/cellplane/internal/hub/manager/ownership"
	"github.com/cellplane/cellplane/internal/hub/replicate"
)

// copying is the Replicator and what surrounds it: where the cells are, how far they are, and who may go.
type copying struct {
	manager    manager.Manager
	replicator *replicate.Replicator
	cells      *cells
	publisher  *publisher
}

func newCopying(ctx context.Context, c *Config) (*copying, error) {
	hub := rest.CopyConfig(c.Hub)
	hub.QPS = -1 // the hub's own flow control decides
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mgr, err := manager.New(hub, manager.Options{
		Scheme:     scheme,
		Logger:     quiet(ctx),
		Metrics:    metricsserver.Options{BindAddress: "0"}, // the process has one for all of its parts
		Cache:      cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to follow the hub: %w", err)
	}
	p := &copying{manager: mgr}
	reporter := &reporter{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("hub-manager")}
	p.replicator, err = replicate.New(hub, replicate.Options{
		Workers: c.CopyWorkers,
		Prepare: prepareCell,
		Report:  func(cell string, found replicate.Obstacle) { reporter.report(ctx, cell, found) },
	})
	if err != nil {
		return nil, err
	}
	p.cells = &cells{client: mgr.GetClient(), secrets: mgr.GetAPIReader(), set: p.replicator.SetCell, remove: p.replicator.RemoveCell, known: map[string]*knownCell{}}
	p.publisher = &publisher{client: mgr.GetClient(), status: p.replicator.Status, problem: p.cells.problem}
	if err := p.cells.add(mgr); err != nil {
		return nil, fmt.Errorf("preparing to follow cells: %w", err)
	}
	if err := ownership.Add(mgr, p.replicator.Released); err != nil {
		return nil, fmt.Errorf("preparing to follow policies: %w", err)
	}
	return p, nil
}

func (p *copying) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.manager.Start(ctx) })
	group.Go(func() error { return p.replicator.Start(ctx) })
	group.Go(func() error { return p.publisher.run(ctx) })
	return group.Wait()
}

// reporter tells of what is found in cells and is not a copy.
type reporter struct {
	client   client.Client
	recorder events.EventRecorder
}

func (r *reporter) report(ctx context.Context, cell string, found replicate.Obstacle) {
	klog.FromContext(ctx).Info("A cell holds something that is not a copy", "cell", cell, "kind", found.Kind, "object", found.Object, "reason", found.Reason)
	var object cellplanev1alpha1.Cell
	if err := r.client.Get(ctx, types.NamespacedName{Name: cell}, &object); err != nil {
		return // the cell has gone
	}
	kind := corev1.EventTypeNormal
	if !found.Harmless() {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(&object, nil, kind, "ForeignObject", "Copy", "%s %s: %s", found.Kind, found.Object, found.Message)
}
