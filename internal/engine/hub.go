package engine

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/quota"
	"github.com/cellplane/cellplane/internal/ledger"
)

// ledgerPatience is how long an engine waits for the ledgers before it works without them: the hub may be away.
const ledgerPatience = 10 * time.Second

// followLedgers follows the ledgers until the context ends, and returns when they are known.
func followLedgers(ctx context.Context, promises *ledger.Store) {
	go promises.Run(ctx)
	patience := time.NewTimer(ledgerPatience)
	defer patience.Stop()
	select {
	case <-promises.Synced():
	case <-ctx.Done():
	case <-patience.C:
		klog.FromContext(ctx).Info("the hub does not tell what room is promised; going on with what clusters say of themselves")
	}
}

// ledger returns the ledgers of clusters, which are on the hub. Without a way to the hub there are none: then decisions
// rely on what clusters say of themselves.
func (c *Config) ledger() (*ledger.Store, error) {
	hub := c.hubConfig()
	if hub == nil {
		return nil, nil
	}
	return ledger.NewStore(ledger.Options{Hub: hub, Holder: c.Cell})
}

// hubConfig leads to the hub, nil if nothing does.
func (c *Config) hubConfig() *rest.Config {
	hub := c.HubAPI
	if c.Hub {
		hub = c.Config
	}
	if hub == nil {
		return nil
	}
	hub = rest.CopyConfig(hub)
	hub.QPS = -1
	return hub
}

// quotas returns the guard of FederatedResourceQuotas. Without a way to the hub the cell's own are all there are.
func (c *Config) quotas(state *cell.Cell) (*quota.Guard, error) {
	hub := c.hubConfig()
	if hub == nil {
		hub = rest.CopyConfig(c.Config)
		hub.QPS = -1
	}
	scheme := runtime.NewScheme()
	if err := policyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	client, err := client.New(hub, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the quotas on the hub: %w", err)
	}
	return quota.NewGuard(state, client), nil
}

// HubRules are the rights that the engine of a cell needs on the hub to keep to what is promised and to quotas.
func HubRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{cellplanev1alpha1.GroupVersion.Group}, Resources: []string{"clusterledgers"}, Verbs: []string{"get", "list", "watch", "update"}},
		{APIGroups: []string{policyv1alpha1.GroupVersion.Group}, Resources: []string{"federatedresourcequotas"}, Verbs: []string{"get", "list", "watch", "update"}},
	}
}
