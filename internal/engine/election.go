package engine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/election"
)

const (
	leaseNamePrefix = "cellplane-engine-"
	requestTimeout  = 5 * time.Second // two attempts fit before the deadline
)

// leaseTiming is long enough for a busy machine. The death of a leader is noticed sooner, see peer.go.
var leaseTiming = election.Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 12 * time.Second, RetryPeriod: time.Second}

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
	// Others take the end of their connection for the death of this engine, so it is open until this one leads no more.
	peers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	identity, err := listenForPeers(peers, cmp.Or(e.config.PeerAddress, "127.0.0.1:0"), uuid.NewString())
	if err != nil {
		return err
	}
	lease := election.Lease{Client: client, Namespace: names.SystemNamespace, Name: leaseNamePrefix + e.config.Cell, Identity: identity, Timing: leaseTiming}
	candidate, err := election.New(lease)
	if err != nil {
		return err
	}
	watch := &peerWatch{leader: candidate.Leader, self: identity, release: func(ctx context.Context, holder string) error {
		return election.Release(ctx, client, lease.Namespace, lease.Name, holder)
	}}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go watch.run(watching)
	err = candidate.Run(ctx, e.leadUnlessRefused)
	if err != nil {
		return fmt.Errorf("leading cell %s: %w", e.config.Cell, err)
	}
	return nil
}
