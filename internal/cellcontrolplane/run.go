package cellcontrolplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/health"
	"github.com/cellplane/cellplane/internal/install"
)

// Config is the configuration of the provider.
type Config struct {
	// Cluster is the cluster on which the federation is installed.
	Cluster *rest.Config
	// Release is the installation.
	Release install.Release
	// HealthAddress is where /healthz and /readyz are served; empty means nowhere.
	HealthAddress string

	linger time.Duration         // 0 means the default
	wrap   transport.WrapperFunc // for tests
}

// ReadRelease reads the file that describes the installation. The chart writes it.
func ReadRelease(file string) (install.Release, error) {
	data, err := os.ReadFile(file) // #nosec G304 -- the operator names it
	if err != nil {
		return install.Release{}, fmt.Errorf("reading the release: %w", err)
	}
	var release struct {
		Name      string         `json:"name"`
		Namespace string         `json:"namespace"`
		Values    map[string]any `json:"values"`
	}
	if err := yaml.UnmarshalStrict(data, &release); err != nil {
		return install.Release{}, fmt.Errorf("%s: %w", file, err)
	}
	if release.Name == "" || release.Namespace == "" {
		return install.Release{}, fmt.Errorf("%s has no name or no namespace", file)
	}
	if release.Values == nil {
		release.Values = map[string]any{}
	}
	return install.Release{Name: release.Name, Namespace: release.Namespace, Values: release.Values}, nil
}

// timing is when another replica takes over.
var timing = election.Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}

// Run runs the provider until the context ends. One of several replicas leads.
func (c *Config) Run(ctx context.Context) error {
	ctrllog.SetLogger(klog.FromContext(ctx).V(2))
	stop, err := health.Part{Ready: func() error { return nil }}.Serve(ctx, "", c.HealthAddress) // nobody connects to it
	if err != nil {
		return err
	}
	defer stop()
	leases := rest.CopyConfig(c.Cluster)
	leases.Timeout = timing.RenewDeadline
	api, err := kubernetes.NewForConfig(leases)
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	candidate, err := election.New(election.Lease{
		Client: api.CoordinationV1(), Namespace: c.Release.Namespace, Name: c.leaseName(), Identity: host + "_" + uuid.NewString(), Timing: timing,
	})
	if err != nil {
		return err
	}
	return candidate.Run(ctx, c.lead)
}

// leaseName is also the name of the Deployment, whose rights are for this name.
func (c *Config) leaseName() string { return c.Release.Fullname() + "-cluster-api" }

// lead reconciles.
func (c *Config) lead(ctx context.Context) error {
	mgr, err := c.manager(ctx)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (c *Config) manager(ctx context.Context) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mgr, err := manager.New(c.Cluster, manager.Options{
		Scheme:  scheme,
		Logger:  klog.FromContext(ctx).V(2),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{c.Release.Namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(),
		},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the cluster: %w", err)
	}
	controller, err := New(c.Cluster, mgr.GetClient(), c.Release)
	if err != nil {
		return nil, err
	}
	controller.Wrap, controller.Linger = c.wrap, cmp.Or(c.linger, linger)
	return mgr, controller.Add(mgr)
}

// New returns a controller for a release. objects reads and writes objects of the cluster.
func New(config *rest.Config, objects client.Client, release install.Release) (*Controller, error) {
	cluster, err := install.Connect(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the cluster: %w", err)
	}
	secrets, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to reach the cluster: %w", err)
	}
	return &Controller{Objects: objects, Secrets: secrets, Cluster: cluster, Release: release, Linger: linger, Now: time.Now}, nil
}

// Add adds the controller to a manager.
func (c *Controller) Add(mgr manager.Manager) error {
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(clusterKind)
	ofCluster := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return c.planesOf(ctx, object.GetName())
	})
	ofWorkload := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return c.planesOf(ctx, object.GetLabels()[clusterNameLabel])
	})
	err := builder.ControllerManagedBy(mgr).
		Named("cell-control-plane").
		For(&v1alpha1.CellControlPlane{}).
		Watches(cluster, ofCluster).
		Watches(&appsv1.Deployment{}, ofWorkload).
		Watches(&appsv1.StatefulSet{}, ofWorkload).
		Complete(c)
	if err != nil {
		return fmt.Errorf("preparing to watch CellControlPlanes: %w", err)
	}
	return nil
}

// planesOf returns the CellControlPlanes of a Cluster.
func (c *Controller) planesOf(ctx context.Context, cluster string) []reconcile.Request {
	if cluster == "" {
		return nil
	}
	list := &v1alpha1.CellControlPlaneList{}
	if err := c.Objects.List(ctx, list, client.InNamespace(c.Release.Namespace)); err != nil {
		klog.FromContext(ctx).Error(err, "cannot list CellControlPlanes")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if clusterOf(&list.Items[i]) == cluster {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}})
		}
	}
	return requests
}
