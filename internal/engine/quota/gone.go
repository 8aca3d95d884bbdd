package quota

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/cellstates"
)

// goneRetry is how soon the entries of a failed cell are looked at again while its share is not promoted.
const goneRetry = 2 * time.Second

// forgetGone removes the usage of cells that are gone from the record of a quota: their workloads count in other cells. It reports whether the cell of
// another entry has failed and its share is not promoted yet. It is called on the hub.
func (g *Guard) forgetGone(ctx context.Context, key cell.Key) (waits bool, err error) {
	fresh := &policyv1alpha1.FederatedResourceQuota{}
	if err := g.hub.Get(ctx, key, fresh); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	recorded := recordOf(fresh)
	delete(recorded, g.cell.Name) // the hub is no cell
	if len(recorded) == 0 {
		return false, nil
	}
	states, err := cellstates.Read(ctx, g.hub)
	if err != nil {
		return false, err
	}
	gone, waits := recorded.gone(states)
	changed, err := drop(fresh, gone)
	if err != nil || !changed {
		return waits, err
	}
	if err := g.hub.Update(ctx, fresh); err != nil {
		return waits, fmt.Errorf("removing the usage of lost cells from FederatedResourceQuota %s/%s: %w", fresh.Namespace, fresh.Name, err)
	}
	return waits, nil
}

// gone returns the cells of a record that are not in the topology any more, or have failed and were taken over. waits reports whether others have failed
// and are yet to be taken over; until then nobody else counts their workloads.
func (r record) gone(states *cellstates.States) (gone []string, waits bool) {
	for name := range r {
		switch {
		case states.Gone(name):
			gone = append(gone, name)
		case states.Failing(name):
			waits = true
		}
	}
	return gone, waits
}

// drop removes cells from the record on a quota and reports whether it changed.
func drop(quota *policyv1alpha1.FederatedResourceQuota, cells []string) (bool, error) {
	if len(cells) == 0 {
		return false, nil
	}
	r := recordOf(quota)
	for _, name := range cells {
		delete(r, name)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	quota.Annotations[names.QuotaUsedAnnotation] = string(text)
	return true, nil
}
