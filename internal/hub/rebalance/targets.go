package rebalance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/slots"
)

// prepareTargets makes sure that the cells can take the objects that move to them.
func (c *change) prepareTargets(ctx context.Context) error {
	for _, name := range c.in(cellplanev1alpha1.CellStateIn) {
		if err := c.grantAll(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.cells)) {
		if index, _ := c.compiled.Index(name); c.gains(index) {
			if err := c.checkTarget(ctx, name, c.cells[name]); err != nil {
				return err
			}
		}
	}
	group, checking := errgroup.WithContext(ctx)
	group.SetLimit(cellstore.Passes())
	for _, connection := range c.cells {
		group.Go(func() error { return connection.checkKeys(checking, c.topology.Generation) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.checkProtection(ctx)
}

// gains reports whether a cell gains slots.
func (c *change) gains(cell slots.Index) bool {
	for slot := range slots.Slot(slots.Count) {
		if route := c.compiled.Route(slot); route.Moving() && route.New == cell {
			return true
		}
	}
	return false
}

// discoveryTimeout is how long the API server of a cell may take to answer what it serves.
const discoveryTimeout = 10 * time.Second

// checkTarget returns an error if a cell cannot take objects yet.
func (c *change) checkTarget(ctx context.Context, name string, connection *connection) error {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	var cell cellplanev1alpha1.Cell
	if err := c.Hub.Get(ctx, types.NamespacedName{Name: name}, &cell); err != nil {
		return fmt.Errorf("reading cell %s: %w", name, err)
	}
	if copied := meta.FindStatusCondition(cell.Status.Conditions, names.CellGlobalsCopied); copied == nil || copied.Status != "True" {
		reason := "this has not been checked"
		if copied != nil {
			reason = copied.Message
		}
		return fmt.Errorf("cell %s does not have the hub's global objects yet: %s", name, reason)
	}
	return connection.reader.checkDefinitions(ctx)
}

// checkDefinitions returns an error unless the cell serves all custom kinds.
func (r *reader) checkDefinitions(ctx context.Context) error {
	definitions, err := r.definitions(ctx)
	if err != nil {
		return err
	}
	for i := range definitions.Items {
		established := false
		for _, condition := range definitions.Items[i].Status.Conditions {
			established = established || condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
		}
		if !established {
			return fmt.Errorf("cell %s does not serve %s yet", r.cell, definitions.Items[i].Name)
		}
	}
	return nil
}

// definitions returns the definitions of all custom kinds in the cell.
func (r *reader) definitions(ctx context.Context) (*apiextensionsv1.CustomResourceDefinitionList, error) {
	body, err := r.client.Verb(http.MethodGet).AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").SetHeader("Accept", mediaJSON).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the definitions of cell %s: %w", r.cell, err)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := json.Unmarshal(body, &definitions); err != nil {
		return nil, fmt.Errorf("decoding the definitions of cell %s: %w", r.cell, err)
	}
	return &definitions, nil
}

// readable caches whether all values of a store can be read. To find out means to read the whole store, and a blocked change is retried
// often.
type readable struct {
	// epoch is the last one in which everything could be read. The mover notices if that changes while it runs.
	epoch int64
	// key is that of a value that could not be read.
	key string
}

// checkKeys returns an error if a store holds values that cannot be decrypted, or if its API servers encrypt with keys that are not known.
func (c *connection) checkKeys(ctx context.Context, epoch int64) error {
	if c.readable.epoch == epoch {
		return nil
	}
	if c.readable.key != "" {
		if _, _, err := c.store.Get(ctx, c.readable.key); err != nil {
			return c.unreadable(err)
		}
	}
	if err := c.store.CheckKeys(ctx, c.cell.Probe(c.store)); err != nil {
		return c.unreadable(err)
	}
	for _, err := range c.store.Range(ctx, c.store.Prefix(), 0) {
		var unreadable *cellstore.UnreadableError
		if errors.As(err, &unreadable) {
			c.readable.key = unreadable.KV.Key
		}
		if err != nil {
			return c.unreadable(err)
		}
	}
	c.readable = readable{epoch: epoch}
	return nil
}

func (c *connection) unreadable(err error) error {
	return fmt.Errorf("objects cannot move from or to cell %s: %w", c.store.Cell, err)
}

// checkProtection returns an error if an object that its cell encrypts would move to one that does not.
func (c *change) checkProtection(ctx context.Context) error {
	for _, flow := range c.compiled.Flows() {
		from, to := c.cells[flow.From], c.cells[flow.To]
		if from == nil || to == nil {
			continue // it has failed
		}
		if err := to.store.Admits(ctx, from.store); err != nil {
			return err
		}
	}
	return nil
}

// grantTimeout is how long a member may take to give a cell an identity.
const grantTimeout = 15 * time.Second

// grantAll gives a cell an identity in all members. An unreachable member does not block the change: the cell's
// engine reports what it cannot do there, and failover.Identities retries.
func (c *change) grantAll(ctx context.Context, cell string) error {
	grant := c.Grant
	if grant == nil {
		grant = func(ctx context.Context, cluster, cell string) error {
			return membership.Grant(ctx, c.HubConfig, cluster, cell)
		}
	}
	var clusters clusterv1alpha1.ClusterList
	if err := c.Hub.List(ctx, &clusters); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for i := range clusters.Items {
		cluster := &clusters.Items[i]
		if cluster.Spec.SyncMode == clusterv1alpha1.Pull {
			continue
		}
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, grantTimeout)
			defer cancel()
			if err := grant(limited, cluster.Name, cell); err != nil {
				klog.FromContext(ctx).Info("granting a joining cell an identity in a member failed", "cell", cell, "cluster", cluster.Name, "err", err.Error())
				c.event(c.topology, corev1.EventTypeWarning, "IdentityMissing", "Grant", "cell %s has no identity in cluster %s: %v", cell, cluster.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	return ctx.Err()
}
