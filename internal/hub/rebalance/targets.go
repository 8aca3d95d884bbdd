package rebalance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// ConditionGlobalsCopied is the condition of a Cell that tells whether it has the hub's global objects.
const ConditionGlobalsCopied = "GlobalsCopied"

// checkTarget says in one sentence what keeps a cell from taking objects.
func (c *change) checkTarget(ctx context.Context, name string, connection *connection) error {
	var cell cellplanev1alpha1.Cell
	if err := c.Hub.Get(ctx, types.NamespacedName{Name: name}, &cell); err != nil {
		return fmt.Errorf("reading cell %s: %w", name, err)
	}
	if copied := meta.FindStatusCondition(cell.Status.Conditions, ConditionGlobalsCopied); copied == nil || copied.Status != "True" {
		reason := "nobody has looked yet"
		if copied != nil {
			reason = copied.Message
		}
		return fmt.Errorf("cell %s does not have the hub's global objects yet: %s", name, reason)
	}
	return connection.reader.checkDefinitions(ctx)
}

// checkDefinitions makes sure that the cell serves all custom kinds.
func (r *reader) checkDefinitions(ctx context.Context) error {
	body, err := r.client.Verb(http.MethodGet).AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").SetHeader("Accept", mediaJSON).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("asking cell %s for its definitions: %w", r.cell, err)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := json.Unmarshal(body, &definitions); err != nil {
		return fmt.Errorf("reading the definitions of cell %s: %w", r.cell, err)
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

// checkEncryption refuses stores whose objects cannot be read without an API server's keys.
func checkEncryption(ctx context.Context, store *cellstore.Store) error {
	for kv, err := range store.Range(ctx, store.Prefix(), 0) {
		if err != nil {
			return err
		}
		if bytes.HasPrefix(kv.Value, []byte("k8s:enc:")) {
			return fmt.Errorf("objects cannot leave or join cell %s: %w", store.Cell, cellstore.ErrEncrypted)
		}
	}
	return nil
}

// sweep removes what was left behind in a cell, in some slots. With strays it also removes bindings and Works that an engine has
// stored after their template had left.
func (c *change) sweep(ctx context.Context, store *cellstore.Store, in func(slots.Slot) bool, strays bool) error {
	for kv, err := range store.Range(ctx, store.Prefix(), 0) {
		if err != nil {
			return err
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			return fmt.Errorf("reading %s in cell %s: %w", kv.Key, store.Cell, err)
		}
		class, slot := cellstore.Classify(object)
		if class == cellstore.Local || !in(slot) {
			continue
		}
		left := object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated
		if !left && (!strays || class == cellstore.Template) {
			continue
		}
		_, err = store.Txn(ctx, c.Term, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Delete(kv.Key))
		if err != nil && !errors.Is(err, cellstore.ErrConflict) {
			return fmt.Errorf("removing %s from cell %s: %w", object, store.Cell, err)
		}
		leftovers.Inc()
	}
	return nil
}

// cleanUp removes what was left behind when the grace period is over. Members notice nothing: the engine of the cell has stood back
// from these objects, and does so from their end as well.
func (c *change) cleanUp(ctx context.Context) error {
	since := c.topology.Status.LeftoversSince
	if since == nil {
		return nil
	}
	grace := 12 * time.Hour
	if given := c.topology.Spec.Migration.GracePeriod; given != nil {
		grace = given.Duration
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(time.Until(since.Add(grace))):
	}
	var all cellplanev1alpha1.CellList
	if err := c.Hub.List(ctx, &all); err != nil {
		return fmt.Errorf("listing cells: %w", err)
	}
	for i := range all.Items {
		name := all.Items[i].Name
		index, member := c.compiled.Index(name)
		if member && c.compiled.Cell(index).State == slots.Failed {
			continue // it is emptied before it returns
		}
		if err := c.cleanCell(ctx, name, index, member); err != nil {
			if member {
				return err
			}
			klog.FromContext(ctx).Info("A cell that has left cannot be cleaned up", "cell", name, "reason", err.Error())
		}
	}
	status := c.status()
	status.LeftoversSince = nil
	setSettled(status, c.topology.Generation, "True", "Stable", "no change is under way")
	c.event(c.topology, "Normal", "CleanedUp", "Rebalance", "what objects had left behind in their former cells is gone")
	return c.publish(ctx, status)
}

func (c *change) cleanCell(ctx context.Context, name string, index slots.Index, member bool) error {
	connection, err := c.Cells.to(ctx, name)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := connection.store.RaiseTerm(limited, c.Term); err != nil {
		return err
	}
	return c.sweep(ctx, connection.store, func(slot slots.Slot) bool { return !member || c.compiled.Route(slot).New != index }, true)
}
