package manager

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/admission"
	"github.com/cellplane/cellplane/internal/hub/clusters"
)

// LeaseName is the name of the Lease that the working replica holds, in the namespace names.SystemNamespace.
const LeaseName = "cellplane-hub-manager"

// Config is all that a hub manager needs.
type Config struct {
	// Hub leads to the hub.
	Hub *rest.Config
	// Identity tells replicas apart.
	Identity    string
	BindAddress string
	CopyWorkers int
	// StateDir is where snapshots of cells that return are kept.
	StateDir string
	// AutoFailoverAfter is how long a cell must be silent to be given up; 0 means never.
	AutoFailoverAfter time.Duration
	Election          Election
	Admission         admission.Options
	Clusters          clusters.Options
}

// ErrLeaseLost means that another replica may be working. The process should end and be started anew.
var ErrLeaseLost = errors.New("the lease of the hub manager is lost; another replica takes over")

// Run waits until it is this replica's turn and works until ctx ends. When it returns everything has stopped.
func (c *Config) Run(ctx context.Context) error {
	ctrllog.SetLogger(quiet(ctx))
	board := &board{identity: c.Identity}
	server, err := serve(ctx, c.BindAddress, board)
	if err != nil {
		return err
	}
	defer server.stop()
	if err := c.ensureNamespaces(ctx); err != nil {
		return err
	}
	return c.elect(ctx, func(ctx context.Context) error { return c.work(ctx, board) })
}

// work is what the working replica does.
func (c *Config) work(ctx context.Context, board *board) error {
	if err := admission.Install(ctx, c.Hub, c.Admission); err != nil {
		return err
	}
	copying, err := newCopying(ctx, c)
	if err != nil {
		return err
	}
	options := c.Clusters
	options.ExecutionSpace.Cells = copying.cells.clients
	caring, err := clusters.New(ctx, c.Hub, options)
	if err != nil {
		return err
	}
	changing, err := newChanging(ctx, c, copying)
	if err != nil {
		return err
	}
	defer changing.connections.Close()
	safeguarding := newSafeguarding(c, copying, changing)
	withdraw, err := board.show(copying.replicator)
	if err != nil {
		return err
	}
	defer withdraw()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return copying.run(ctx) })
	group.Go(func() error { return caring.Run(ctx) })
	group.Go(func() error { return changing.controller.Run(ctx) })
	group.Go(func() error { return changing.observer.Run(ctx) })
	group.Go(func() error { return safeguarding.run(ctx) })
	return group.Wait()
}

// ensureNamespaces makes the namespaces of the control plane itself.
func (c *Config) ensureNamespaces(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Hub)
	if err != nil {
		return fmt.Errorf("preparing to reach the hub: %w", err)
	}
	for _, name := range []string{names.SystemNamespace, names.ClusterNamespace} {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making the namespace %s on the hub: %w", name, err)
		}
	}
	return nil
}

// elect calls work while this replica holds the lease, at most once. The lease is given back after work has returned,
// so that no two replicas work at a time.
func (c *Config) elect(ctx context.Context, work func(context.Context) error) error {
	config := rest.CopyConfig(c.Hub)
	config.Timeout = c.Election.RenewDeadline // a request that hangs must not outlive the lease
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing to reach the hub: %w", err)
	}
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var begun atomic.Bool
	ended := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: LeaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
		},
		LeaseDuration:   c.Election.LeaseDuration,
		RenewDeadline:   c.Election.RenewDeadline,
		RetryPeriod:     c.Election.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				begun.Store(true)
				working, stop := context.WithCancel(leading)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				klog.FromContext(ctx).Info("This replica works", "identity", c.Identity)
				ended <- workUntil(working, work)
				release()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the leader election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		if !begun.Load() {
			release()
		}
	})()
	elector.Run(electing)
	if !begun.Load() {
		return nil // ctx ended while waiting
	}
	if err := <-ended; err != nil || ctx.Err() != nil {
		return err
	}
	return ErrLeaseLost
}

// workUntil works unless it is over before it begins. Being told to stop is no error.
func workUntil(ctx context.Context, work func(context.Context) error) error {
	if ctx.Err() != nil {
		return nil
	}
	if err := work(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// quiet returns a logger for libraries that speak of every step they take.
func quiet(ctx context.Context) klog.Logger { return klog.FromContext(ctx).V(1) }
