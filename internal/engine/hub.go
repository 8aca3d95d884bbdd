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
	"github.com/cellplane/cellplane/internal/ledger"
)

// ledgerTimeout is how long an engine waits for the ledgers before it continues without them: the hub may be unreachable.
const ledgerTimeout = 10 * time.Second

// watchLedgers watches the ledgers until the context ends. It returns when they are known.
func watchLedgers(ctx context.Context, ledgers *ledger.Store) {
	go ledgers.Run(ctx)
	timeout := time.NewTimer(ledgerTimeout)
	defer timeout.Stop()
	select {
	case <-ledgers.Synced():
	case <-ctx.Done():
	case <-timeout.C:
		klog.FromContext(ctx).Info("cannot read reserved capacity from the hub, going on with the capacity that clusters report")
	}
}

// ledger returns the ledgers of clusters, which are on the hub. Without a connection to the hub it returns nil: then the
// scheduler relies on the capacity that clusters report.
func (c *Config) ledger() (*ledger.Store, error) {
	hub := c.hubConfig()
	if hub == nil {
		return nil, nil
	}
	return ledger.NewStore(ledger.Options{Hub: hub, Holder: c.Cell})
}

// hubConfig returns the configuration for the hub, nil if there is none.
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

// hubClient returns a client for what engines record on the hub. Without a connection to the hub, it is in the cell.
func (c *Config) hubClient() (client.Client, error) {
	hub := c.hubConfig()
	if hub == nil {
		hub = rest.CopyConfig(c.Config)
		hub.QPS = -1
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{policyv1alpha1.AddToScheme, cellplanev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	records, err := client.New(hub, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the hub: %w", err)
	}
	return records, nil
}

// HubRules are the permissions that the engine of a cell needs on the hub, for reservations, quotas and groups.
func HubRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{cellplanev1alpha1.GroupVersion.Group}, Resources: []string{"clusterledgers"}, Verbs: []string{"get", "list", "watch", "update"}},
		{APIGroups: []string{cellplanev1alpha1.GroupVersion.Group}, Resources: []string{"workloadgroups"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		{APIGroups: []string{policyv1alpha1.GroupVersion.Group}, Resources: []string{"federatedresourcequotas"}, Verbs: []string{"get", "list", "watch", "update"}},
	}
}
