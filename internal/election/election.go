// Package election lets one of the replicas of a part lead. A Lease decides which. A leader that is told to stop holds it until all its work has
// stopped. One that cannot renew it is told to stop at the RenewDeadline, and has until the end of the LeaseDuration before another leads.
package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// ErrLost means that another replica may lead. The process should exit and be restarted.
var ErrLost = errors.New("the Lease of the leader is lost; another replica takes over")

// Timing is when a leader is replaced.
type Timing struct {
	// LeaseDuration is how long standby replicas wait after the last renewal, RenewDeadline is how long the leader tries to
	// renew before it stops, and RetryPeriod is the time between attempts.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// Lease is what replicas compete for.
type Lease struct {
	// Client should have a timeout: a request that hangs must not outlive the Lease.
	Client          coordinationv1.LeasesGetter
	Namespace, Name string
	// Identity is unique among the replicas.
	Identity string
	Timing   Timing
}

// Candidate takes part in an election.
type Candidate struct {
	lease   Lease
	elector *leaderelection.LeaderElector
	lead    func(context.Context) // set by Run
}

// New returns a candidate.
func New(lease Lease) (*Candidate, error) {
	c := &Candidate{lease: lease}
	var err error
	c.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: lease.Name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Client:     lease.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: lease.Identity},
		},
		LeaseDuration: lease.Timing.LeaseDuration,
		RenewDeadline: lease.Timing.RenewDeadline,
		RetryPeriod:   lease.Timing.RetryPeriod,
		// client-go would release the Lease before the leader knows that it has to stop.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { c.lead(ctx) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the leader election: %w", err)
	}
	return c, nil
}

// Leader returns the identity of the leader as far as it is known.
func (c *Candidate) Leader() string { return c.elector.GetLeader() }

// Run waits until this replica is elected and lets it lead until ctx ends. lead must return soon after its context has ended; the Lease is renewed
// until then, and released after that. Run returns the error of lead, ErrLost if the Lease was lost, and nil after the end of ctx. It can be called
// once.
func (c *Candidate) Run(ctx context.Context, lead func(context.Context) error) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var begun atomic.Bool
	ended := make(chan error, 1)
	c.lead = func(leading context.Context) {
		begun.Store(true)
		leading, cancel := context.WithCancel(leading)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		defer stop()
		over := func() bool { return ctx.Err() != nil || leading.Err() != nil }
		if over() {
			ended <- nil
			return
		}
		klog.FromContext(ctx).Info("leading", "lease", c.lease.Name, "identity", c.lease.Identity)
		err := lead(leading)
		if over() {
			err = nil
		}
		ended <- err
	}
	defer context.AfterFunc(ctx, func() {
		if !begun.Load() {
			stop()
		}
	})()
	c.elector.Run(electing)
	var err error
	if begun.Load() {
		err = <-ended
	}
	if c.elector.IsLeader() {
		c.release(ctx)
	}
	if err != nil || ctx.Err() != nil {
		return err
	}
	return ErrLost
}

// release spares other replicas the wait for the end of the Lease.
func (c *Candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.lease.Timing.RenewDeadline)
	defer cancel()
	if err := Release(ctx, c.lease.Client, c.lease.Namespace, c.lease.Name, c.lease.Identity); err != nil {
		klog.FromContext(ctx).Info("cannot release the Lease of the leader, others wait until it expires", "lease", c.lease.Name, "err", err)
	}
}

// Release releases a Lease on behalf of its holder, if that is still the same. The holder must not lead any more.
func Release(ctx context.Context, client coordinationv1.LeasesGetter, namespace, name, holder string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { // its last renewal may be on its way
		lease, err := client.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") != holder {
			return nil
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
		_, err = client.Leases(namespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
}
