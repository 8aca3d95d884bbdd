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

// revokeTimeout is how long one member may take to revoke an identity. Others are not kept waiting by it.
const revokeTimeout = 10 * time.Second

// revokeAll takes the identity of a cell away in all members, concurrently, and returns those in which it could not. They must not be
// written to in the name of the federation before that has been made up for: the old engine might still write there too.
func revokeAll(ctx context.Context, hub *rest.Config, cell string, members []string) (unfenced []string) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, member := range members {
		group.Go(func() {
			if err := revoke(ctx, hub, cell, member); err != nil {
				klog.FromContext(ctx).Info("A cell still has its identity in a member", "cell", cell, "cluster", member, "reason", err.Error())
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
		return fmt.Errorf("finding the way into cluster %s: %w", member, err)
	}
	if err := membership.Revoke(ctx, registrar, member, cell); err != nil {
		return err
	}
	return membership.Withdraw(ctx, hub, member, cell)
}
