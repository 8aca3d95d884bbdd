package quota

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/keylock"
	"github.com/cellplane/cellplane/internal/schedule"
)

// Guard refuses decisions that would exceed a quota. It implements scheduler.Guard.
type Guard struct {
	cell *cell.Cell
	hub  client.Client

	mu       sync.Mutex
	bindings map[string]map[cell.Key]corev1.ResourceList // usage of bindings, by namespace
	pending  map[cell.Key]corev1.ResourceList            // usage of bindings whose decision is being written
	held     map[cell.Key]struct{}                       // bindings whose requirements were refused
	locks    keylock.Locks[string]                       // by namespace
}

// NewGuard returns a guard that watches a cell. It updates the quotas on the hub.
func NewGuard(c *cell.Cell, hub client.Client) *Guard {
	g := &Guard{cell: c, hub: hub, bindings: map[string]map[cell.Key]corev1.ResourceList{}, pending: map[cell.Key]corev1.ResourceList{}, held: map[cell.Key]struct{}{}}
	c.SubscribeBindings(func(key cell.Key, _, now *workv1alpha2.ResourceBinding) {
		if key.Namespace == "" {
			return
		}
		used := usageOf(now)
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.held, key)
		if now != nil && now.DeletionTimestamp == nil && scheduler.Held(now) {
			g.held[key] = struct{}{}
		}
		if len(used) == 0 {
			delete(g.bindings[key.Namespace], key)
			return
		}
		if g.bindings[key.Namespace] == nil {
			g.bindings[key.Namespace] = map[cell.Key]corev1.ResourceList{}
		}
		g.bindings[key.Namespace][key] = used
	})
	return g
}

// quotasOf returns the quotas of a namespace.
func (g *Guard) quotasOf(namespace string) []*policyv1alpha1.FederatedResourceQuota {
	var quotas []*policyv1alpha1.FederatedResourceQuota
	for _, quota := range g.cell.Quotas.All() {
		if quota.Namespace == namespace && quota.DeletionTimestamp == nil {
			quotas = append(quotas, quota)
		}
	}
	return quotas
}

// Admit accepts a decision that stays within all quotas of its namespace or does not increase usage.
func (g *Guard) Admit(ctx context.Context, before, after *workv1alpha2.ResourceBinding) (scheduler.Hold, *schedule.Failure, error) {
	quotas := g.quotasOf(after.Namespace)
	if len(quotas) == 0 {
		return nil, nil, nil
	}
	wanted := after.DeepCopy()
	delete(wanted.Annotations, names.AdmittedRequirementsAnnotation)
	was, will := usageOf(before), usageOf(wanted)
	if same(was, will) {
		return nil, nil, nil
	}
	defer g.locks.Lock(after.Namespace)()
	key := cell.Key{Namespace: after.Namespace, Name: after.Name}
	g.setPending(key, will)
	for _, quota := range quotas {
		failure, err := g.reserve(ctx, quota, was, will)
		if failure != nil || err != nil {
			g.setPending(key, nil)
			return nil, failure, err
		}
	}
	return &hold{g, key}, nil, nil
}

// heldIn returns the bindings of a namespace whose requirements were refused.
func (g *Guard) heldIn(namespace string) []cell.Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	var keys []cell.Key
	for key := range g.held {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	return keys
}

// maxTries bounds the retries after conflicts with other cells.
const maxTries = 20

// reserve records the future usage of this cell on the hub if it is within the quota.
func (g *Guard) reserve(ctx context.Context, quota *policyv1alpha1.FederatedResourceQuota, was, will corev1.ResourceList) (*schedule.Failure, error) {
	for range maxTries {
		fresh := &policyv1alpha1.FederatedResourceQuota{}
		if err := g.hub.Get(ctx, client.ObjectKeyFromObject(quota), fresh); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			return nil, fmt.Errorf("reading FederatedResourceQuota %s/%s: %w", quota.Namespace, quota.Name, err)
		}
		overall := fresh.Spec.Overall
		mine := within(g.usage(quota.Namespace), overall)
		total := recordOf(fresh).total(g.cell.Name)
		for name, quantity := range mine {
			sum := total[name]
			sum.Add(quantity)
			total[name] = sum
		}
		if message := exceeded(fresh.Namespace+"/"+fresh.Name, overall, total, within(was, overall), within(will, overall)); message != "" {
			return &schedule.Failure{Reason: names.ReasonQuotaExceeded, Message: message}, nil
		}
		err := g.write(ctx, fresh, mine)
		if err == nil {
			return nil, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("FederatedResourceQuota %s/%s changes too often, giving up for now", quota.Namespace, quota.Name)
}

// write records the usage of this cell if it changed.
func (g *Guard) write(ctx context.Context, quota *policyv1alpha1.FederatedResourceQuota, used corev1.ResourceList) error {
	changed, err := set(quota, g.cell.Name, used)
	if err != nil || !changed {
		return err
	}
	if err := g.hub.Update(ctx, quota); err != nil {
		return fmt.Errorf("recording the usage of FederatedResourceQuota %s/%s: %w", quota.Namespace, quota.Name, err)
	}
	return nil
}

// correct sets the recorded usage to the real usage. Until then, decisions that were never written and deleted
// workloads still count.
func (g *Guard) correct(ctx context.Context, key cell.Key) error {
	defer g.locks.Lock(key.Namespace)()
	fresh := &policyv1alpha1.FederatedResourceQuota{}
	if err := g.hub.Get(ctx, key, fresh); err != nil {
		return client.IgnoreNotFound(err)
	}
	return g.write(ctx, fresh, within(g.usage(key.Namespace), fresh.Spec.Overall))
}

// usage sums up the current and pending usage of this cell in a namespace.
func (g *Guard) usage(namespace string) corev1.ResourceList {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := corev1.ResourceList{}
	count := func(used corev1.ResourceList) {
		for name, quantity := range used {
			total := sum[name]
			total.Add(quantity)
			sum[name] = total
		}
	}
	for key, used := range g.bindings[namespace] {
		if _, changes := g.pending[key]; !changes {
			count(used)
		}
	}
	for key, used := range g.pending {
		if key.Namespace == namespace {
			count(used)
		}
	}
	return sum
}

// setPending stores the usage of a binding whose decision is being written; nil removes it.
func (g *Guard) setPending(key cell.Key, used corev1.ResourceList) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if used == nil {
		delete(g.pending, key)
		return
	}
	g.pending[key] = used
}

// hold counts the usage of a decision until it is written. Then the binding itself counts.
type hold struct {
	guard *Guard
	key   cell.Key
}

// Commit implements scheduler.Hold.
func (h *hold) Commit(*workv1alpha2.ResourceBinding) { h.guard.setPending(h.key, nil) }

// Release implements scheduler.Hold.
func (h *hold) Release() { h.guard.setPending(h.key, nil) }
