package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/admission"
	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/hub/clusters"
	"github.com/cellplane/cellplane/internal/hub/eventnote"
	"github.com/cellplane/cellplane/internal/hub/policylimit"
	"github.com/cellplane/cellplane/internal/hub/storespace"
	"github.com/cellplane/cellplane/internal/scrape"
	"github.com/cellplane/cellplane/internal/skew"
)

// LeaseName is the name of the Lease that the leader holds, in the namespace names.SystemNamespace.
const LeaseName = "cellplane-hub-manager"

// Config is the complete configuration of a hub manager.
type Config struct {
	Hub *rest.Config
	// Identity is unique among the replicas.
	Identity    string
	BindAddress string
	// HealthAddress is where only /healthz and /readyz are served; empty means nowhere.
	HealthAddress string
	// Scrape is where metrics are served with TLS and authentication.
	Scrape      scrape.Options
	CopyWorkers int
	// StateDir is where snapshots of returning cells are kept.
	StateDir string
	// AutoFailoverAfter is how long a cell must be unreachable to be failed over; 0 means never.
	AutoFailoverAfter time.Duration
	// StoreUpkeep has the etcds of cells be defragmented, and freed when they have used up their quota.
	StoreUpkeep bool
	Election    election.Timing
	Admission   admission.Options
	Clusters    clusters.Options
}

// Run waits until this replica becomes the leader, and leads until ctx ends. Everything has stopped when it returns.
func (c *Config) Run(ctx context.Context) error {
	ctrllog.SetLogger(quiet(ctx))
	c.Hub = rest.CopyConfig(c.Hub)
	c.Hub.QPS = -1 // the hub's own flow control limits requests
	watch, err := skew.New("the hub", c.Hub)
	if err != nil {
		return err
	}
	status := newStatus(c.Identity, watch.Problem)
	part := status.part()
	stop, err := part.Serve(ctx, c.BindAddress, c.HealthAddress)
	if err != nil {
		return err
	}
	defer stop()
	stopScrapes, err := c.Scrape.Serve(ctx, part.Metrics)
	if err != nil {
		return err
	}
	defer stopScrapes()
	limiter, err := policylimit.New(c.Hub)
	if err != nil {
		return err
	}
	// It comes before everything that a policy of a user could block.
	limiting, stopLimiting := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { limiter.Run(limiting) })
	running.Go(func() { watch.Run(limiting) })
	defer running.Wait()
	defer stopLimiting()
	if err := c.ensureNamespaces(ctx); err != nil {
		return err
	}
	if err := watch.Await(ctx); err != nil {
		return nil //nolint:nilerr // stopped before it could lead
	}
	return c.elect(ctx, func(ctx context.Context) error { return c.lead(ctx, status, watch) })
}

// lead runs the controllers.
func (c *Config) lead(ctx context.Context, status *status, watch *skew.Watch) error {
	if err := admission.Install(ctx, c.Hub, c.Admission); err != nil {
		return err
	}
	replication, err := newReplication(ctx, c)
	if err != nil {
		return err
	}
	defer replication.pool.Close()
	defer expiry.Follow(replication.pool.Certificates)()
	options := c.Clusters
	options.ExecutionSpace.Cells = replication.cells.holders
	clusters, err := clusters.New(ctx, c.Hub, options)
	if err != nil {
		return err
	}
	topology, err := newTopology(ctx, c, replication)
	if err != nil {
		return err
	}
	failover := newFailover(c, replication, topology)
	keeper := newStoreKeeper(c, replication, topology)
	failover.backup.Fullness = keeper.Fullness
	withdraw, err := status.publish(replication.replicator, replication.manager.GetClient())
	if err != nil {
		return err
	}
	defer withdraw()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return replication.run(ctx) })
	group.Go(func() error { return clusters.Run(ctx) })
	group.Go(func() error { return topology.controller.Run(ctx) })
	group.Go(func() error { return topology.observer.Run(ctx) })
	group.Go(func() error { return failover.run(ctx) })
	group.Go(func() error { return keeper.Run(ctx) })
	group.Go(func() error { return replication.sweepRecords(ctx) })
	group.Go(func() error { return watch.Refused(ctx) })
	return group.Wait()
}

// newStoreKeeper returns what tends the etcds of the cells.
func newStoreKeeper(c *Config, replication *replication, topology *topology) *storespace.Keeper {
	mgr := replication.manager
	return &storespace.Keeper{
		Hub: mgr.GetClient(), Events: eventnote.Recorder(mgr.GetEventRecorder("hub-manager")), Open: replication.pool.Store, Term: topology.controller.Term, TellOnly: !c.StoreUpkeep,
	}
}

// retryAfter is the time between attempts to prepare the hub.
const retryAfter = time.Second

// ensureNamespaces creates the namespaces of the control plane. When a federation is installed, the hub does not answer yet, and then refuses this part until
// somebody grants it its rights: it waits for both.
func (c *Config) ensureNamespaces(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Hub)
	if err != nil {
		return fmt.Errorf("preparing to reach the hub: %w", err)
	}
	for _, name := range []string{names.SystemNamespace, names.ClusterNamespace} {
		told := ""
		err := wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) {
			err := ensureNamespace(ctx, client, name)
			if err == nil || !passing(err) {
				return err == nil, err
			}
			if text := err.Error(); text != told {
				klog.FromContext(ctx).Info("waiting for the hub", "reason", text)
				told = text
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("creating namespace %s on the hub: %w", name, err)
		}
	}
	return nil
}

// passing reports whether an error is one of a hub that is being installed, or cannot be reached.
func passing(err error) bool {
	return apierrors.IsForbidden(err) || fleet.Unreachable(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// elect calls lead once this replica holds the Lease.
func (c *Config) elect(ctx context.Context, lead func(context.Context) error) error {
	config := rest.CopyConfig(c.Hub)
	config.Timeout = c.Election.RenewDeadline
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing to reach the hub: %w", err)
	}
	candidate, err := election.New(election.Lease{Client: client.CoordinationV1(), Namespace: names.SystemNamespace, Name: LeaseName, Identity: c.Identity, Timing: c.Election})
	if err != nil {
		return err
	}
	return candidate.Run(ctx, lead)
}

// quiet returns a logger for libraries that log every step.
func quiet(ctx context.Context) klog.Logger { return klog.FromContext(ctx).V(1) }
