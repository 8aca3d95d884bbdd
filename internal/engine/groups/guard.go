package groups

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/keylock"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Guard records decisions about grouped workloads on the hub. It implements scheduler.Guard and scheduler.Groups.
type Guard struct {
	cell *cell.Cell
	hub  client.Client

	mu      sync.Mutex
	pending map[cell.Key]*workv1alpha2.ResourceBinding // decisions that are being written
	locks   keylock.Locks[group]
}

// NewGuard returns the guard of a cell.
func NewGuard(c *cell.Cell, hub client.Client) *Guard {
	return &Guard{cell: c, hub: hub, pending: map[cell.Key]*workv1alpha2.ResourceBinding{}}
}

// Elsewhere returns the clusters of a binding's groups in other cells.
func (g *Guard) Elsewhere(ctx context.Context, binding *workv1alpha2.ResourceBinding) (together, apart []string, err error) {
	for _, one := range groupsOf(binding) {
		record, err := g.read(ctx, one)
		if err != nil {
			return nil, nil, err
		}
		with, without := others(record, g.cell.Name, binding.Name)
		if binding.Spec.WorkloadAffinityGroups.AffinityGroup == one.label {
			together = with
		}
		if binding.Spec.WorkloadAffinityGroups.AntiAffinityGroup == one.label {
			apart = without
		}
	}
	return together, apart, nil
}

// Admit records a decision. It is outdated if another cell has placed a workload of a group since the decision was made.
func (g *Guard) Admit(ctx context.Context, before, after *workv1alpha2.ResourceBinding) (scheduler.Hold, *schedule.Failure, error) {
	all := groupsOf(after)
	if len(all) == 0 || before != nil && slices.Equal(clustersOf(before), clustersOf(after)) && slices.Equal(groupsOf(before), all) {
		return nil, nil, nil
	}
	held := &hold{g, cell.Key{Namespace: after.Namespace, Name: after.Name}}
	g.mu.Lock()
	g.pending[held.key] = after.DeepCopy()
	g.mu.Unlock()
	for _, one := range all {
		taken, err := g.write(ctx, one, func(record *cellplanev1alpha1.WorkloadGroup) string {
			together, apart := others(record, g.cell.Name, after.Name)
			return conflict(one, together, apart, before, after)
		})
		if err == nil && taken != "" {
			err = scheduler.Outdated(fmt.Sprintf("the group %s changed in another cell, so cluster %s is not possible", one.label, taken))
		}
		if err != nil {
			held.Release()
			return nil, nil, err
		}
	}
	return held, nil, nil
}

// hold is a decision that is being written.
type hold struct {
	guard *Guard
	key   cell.Key
}

// Commit implements scheduler.Hold. The binding is cached when it has been written.
func (h *hold) Commit(*workv1alpha2.ResourceBinding) { h.Release() }

// Release implements scheduler.Hold. The record is corrected later.
func (h *hold) Release() {
	h.guard.mu.Lock()
	defer h.guard.mu.Unlock()
	delete(h.guard.pending, h.key)
}

// read reads the record of a group; one that does not exist is empty.
func (g *Guard) read(ctx context.Context, one group) (*cellplanev1alpha1.WorkloadGroup, error) {
	record := &cellplanev1alpha1.WorkloadGroup{}
	err := g.hub.Get(ctx, client.ObjectKey{Name: one.name()}, record)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return one.record(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the WorkloadGroup of %s in namespace %s: %w", one.label, one.namespace, err)
	}
	return record, nil
}

// maxTries bounds the retries after conflicts with other cells.
const maxTries = 20

// write records the workloads of this cell in a group, unless refuse returns why not. A record without workloads is deleted.
func (g *Guard) write(ctx context.Context, one group, refuse func(*cellplanev1alpha1.WorkloadGroup) string) (refused string, err error) {
	defer g.locks.Lock(one)()
	for range maxTries {
		record, err := g.read(ctx, one)
		if err != nil {
			return "", err
		}
		if refused := refuse(record); refused != "" {
			return refused, nil
		}
		if !replace(record, g.cell.Name, g.mine(one, record)) {
			return "", nil
		}
		err = g.store(ctx, record)
		if err == nil || meta.IsNoMatchError(err) { // a hub of an earlier release: each cell is on its own
			return "", nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("writing the WorkloadGroup of %s in namespace %s: %w", one.label, one.namespace, err)
		}
	}
	return "", fmt.Errorf("the WorkloadGroup of %s in namespace %s changes too often, giving up for now", one.label, one.namespace)
}

// store writes a record, unless it has changed since it was read.
func (g *Guard) store(ctx context.Context, record *cellplanev1alpha1.WorkloadGroup) error {
	switch {
	case record.ResourceVersion == "":
		return g.hub.Create(ctx, record)
	case len(record.Spec.Workloads) == 0:
		return g.hub.Delete(ctx, record, client.Preconditions{UID: &record.UID, ResourceVersion: &record.ResourceVersion})
	default:
		return g.hub.Update(ctx, record)
	}
}

// mine returns the workloads of this cell in a group, with those whose decision is being written.
func (g *Guard) mine(one group, record *cellplanev1alpha1.WorkloadGroup) []cellplanev1alpha1.GroupedWorkload {
	g.mu.Lock()
	defer g.mu.Unlock()
	var mine []cellplanev1alpha1.GroupedWorkload
	add := func(binding *workv1alpha2.ResourceBinding) {
		if entry, recorded := entryOf(g.cell.Name, record, binding); recorded {
			mine = append(mine, entry)
		}
	}
	for _, key := range g.cell.BindingsOfGroup(one.namespace, one.label) {
		if _, changes := g.pending[key]; !changes {
			add(g.cell.Binding(key))
		}
	}
	for key, binding := range g.pending {
		if key.Namespace == one.namespace {
			// Until it is written, the former clusters count too.
			if before := g.cell.Binding(key); before != nil {
				binding = binding.DeepCopy()
				for i := range before.Spec.Clusters {
					if !slices.Contains(clustersOf(binding), before.Spec.Clusters[i].Name) {
						binding.Spec.Clusters = append(binding.Spec.Clusters, before.Spec.Clusters[i])
					}
				}
			}
			add(binding)
		}
	}
	return mine
}
