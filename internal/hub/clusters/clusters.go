// Package clusters runs the hub's controllers for Clusters: they default them, collect their status, publish their free
// capacity, taint them, create the namespaces of their Works, and give their agents rights.
package clusters

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/hub/agentcertificates"
	"github.com/cellplane/cellplane/internal/hub/agentrights"
	"github.com/cellplane/cellplane/internal/hub/clusterapi"
	"github.com/cellplane/cellplane/internal/hub/clusterspec"
	"github.com/cellplane/cellplane/internal/hub/clusterstatus"
	"github.com/cellplane/cellplane/internal/hub/clustertaint"
	"github.com/cellplane/cellplane/internal/hub/executionspace"
	"github.com/cellplane/cellplane/internal/hub/remedy"
	"github.com/cellplane/cellplane/internal/hub/workloadrebalancer"
	"github.com/cellplane/cellplane/internal/ledger"
)

// Options configure the controllers; the zero value is valid.
type Options struct {
	Status         clusterstatus.Options
	ExecutionSpace executionspace.Options
	// ClusterAPI is the configuration for a Cluster API management cluster whose clusters join automatically; nil means none.
	ClusterAPI *rest.Config
}

// Controllers are the hub's controllers for Clusters.
type Controllers struct {
	manager manager.Manager
}

// New prepares the controllers. Only one process of a federation may run them at a time; the caller has to elect it.
func New(ctx context.Context, hub *rest.Config, options Options) (*Controllers, error) {
	hub = rest.AddUserAgent(rest.CopyConfig(hub), "clusters")
	hub.QPS = -1 // the hub's own flow control limits requests
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mgr, err := manager.New(hub, manager.Options{
		Scheme:  scheme,
		Logger:  klog.FromContext(ctx).V(2),
		Metrics: metricsserver.Options{BindAddress: "0"}, // the process has one for all of its parts
		Cache:   cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: watched},
		// A process may lead several times.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the controllers of clusters: %w", err)
	}
	if options.Status.Models == nil && !options.Status.WithoutResources {
		observer, err := ledger.NewObserver(hub, cmp.Or(options.Status.Interval, 10*time.Second))
		if err != nil {
			return nil, err
		}
		options.Status.Models = observer
		if err := mgr.Add(manager.RunnableFunc(observer.Run)); err != nil {
			return nil, fmt.Errorf("preparing the ledgers of clusters: %w", err)
		}
	}
	if options.ClusterAPI != nil {
		discoverer, err := clusterapi.New(hub, options.ClusterAPI)
		if err != nil {
			return nil, err
		}
		if err := mgr.Add(manager.RunnableFunc(discoverer.Run)); err != nil {
			return nil, fmt.Errorf("preparing to watch the clusters of Cluster API: %w", err)
		}
	}
	for _, add := range []func() error{
		func() error { return agentcertificates.Add(mgr) },
		func() error { return clusterspec.Add(mgr) },
		func() error { return clusterstatus.Add(ctx, mgr, options.Status) },
		func() error { return clustertaint.Add(mgr) },
		func() error { return executionspace.Add(mgr, options.ExecutionSpace) },
		func() error { return agentrights.Add(mgr) },
		func() error { return remedy.Add(mgr) },
		func() error {
			return workloadrebalancer.Add(mgr, workloadrebalancer.Options{Cells: options.ExecutionSpace.Cells})
		},
	} {
		if err := add(); err != nil {
			return nil, fmt.Errorf("preparing the controllers of clusters: %w", err)
		}
	}
	return &Controllers{manager: mgr}, nil
}

// watched limits the cache to Secrets with credentials of members.
var watched = map[client.Object]cache.ByObject{
	&corev1.Secret{}: {Namespaces: map[string]cache.Config{names.ClusterNamespace: {}}},
}

// Run runs the controllers until the context ends.
func (c *Controllers) Run(ctx context.Context) error { return c.manager.Start(ctx) }
