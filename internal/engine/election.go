package engine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
)

// The lease is long enough for a busy machine. The death of a leader is noticed sooner, see peer.go.
const (
	leaseNamePrefix = "cellplane-engine-"
	leaseDuration   = 15 * time.Second
	renewDeadline   = 12 * time.Second
	retryPeriod     = time.Second
	requestTimeout  = 5 * time.Second // two attempts fit before the deadline
)

// electionClient has its own connection: renewing the lease must not wait behind large objects.
func (e *engine) electionClient() (coordinationv1.CoordinationV1Interface, error) {
	config := rest.CopyConfig(e.config.Config)
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " " + userAgentProgram + "/" + e.config.Cell
	config.Dial = (&net.Dialer{Timeout: requestTimeout, KeepAlive: 15 * time.Second}).DialContext
	config.Timeout = requestTimeout
	config.QPS = -1
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing leader election: %w", err)
	}
	return client, nil
}

// elect takes part in leader election and leads when elected. An engine that has lost the lease must restart, with fresh
// caches.
func (e *engine) elect(ctx context.Context) error {
	if err := e.cell.EnsureNamespace(ctx, names.SystemNamespace); err != nil {
		return err
	}
	client, err := e.electionClient()
	if err != nil {
		return err
	}
	identity, err := listenForPeers(ctx, cmp.Or(e.config.PeerAddress, "127.0.0.1:0"), uuid.NewString())
	if err != nil {
		return err
	}
	name := leaseNamePrefix + e.config.Cell
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	led := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Name:            name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(led)
				klog.FromContext(ctx).Info("leading", "cell", e.config.Cell)
				e.lead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	peers := &peerWatch{leader: elector.GetLeader, self: identity, release: func(ctx context.Context, holder string) error {
		return releaseLease(ctx, client, name, holder)
	}}
	go peers.run(ctx)
	elector.Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	cancel()
	<-led
	return fmt.Errorf("another engine is the leader of cell %s now", e.config.Cell)
}
