package failover

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/membership"
)

// revokeTimeout is how long one member may take to revoke an identity.
const revokeTimeout = 10 * time.Second

// revokeAll revokes the identity of a cell in all members, concurrently, and returns those in which that failed. No
// engine may write there until it succeeds: the failed cell's engine might still do so.
func revokeAll(ctx context.Context, hub *rest.Config, cell string, members []string) (unfenced []string) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, member := range members {
		group.Go(func() {
			if err := revoke(ctx, hub, cell, member); err != nil {
				klog.FromContext(ctx).Info("revoking the identity of a cell in a member failed", "cell", cell, "cluster", member, "err", err.Error())
				mu.Lock()
				defer mu.Unlock()
				unfenced = append(unfenced, member)
			}
		})
	}
	group.Wait()
	slices.Sort(unfenced)
	return unfenced
}

func revoke(ctx context.Context, hub *rest.Config, cell, member string) error {
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	registrar, err := membership.Registrar(ctx, hub, member)
	if err != nil {
		return fmt.Errorf("reading the credentials of cluster %s: %w", member, err)
	}
	if err := membership.Revoke(ctx, registrar, member, cell); err != nil {
		return err
	}
	return membership.Withdraw(ctx, hub, member, cell)
}

// revokeAtHub revokes what the engine of a cell may do on the hub and, through gateways, in other cells.
func (t *Takeover) revokeAtHub(ctx context.Context, cell string) error {
	rights, err := newHubRights(t.Hub)
	if err != nil {
		return err
	}
	return rights.revoke(ctx, cell)
}

// restoreAtHub gives the engine of a cell that has returned its rights on the hub back.
func (t *Takeover) restoreAtHub(ctx context.Context, cell string) error {
	rights, err := newHubRights(t.Hub)
	if err != nil {
		return err
	}
	return rights.restore(ctx, cell)
}
