// Package history keeps the revisions of Deployments and StatefulSets in the cell, for kubectl rollout history and undo. They are objects of the kinds that
// kubectl expects, without pods, and are not propagated. Their names put them into the slot of their workload, so that they move and are backed up with it.
package history

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/rollout/revisions"
)

// Controller keeps revisions.
type Controller struct {
	cell *cell.Cell
	// queue has workloads, and revisions without one.
	queue *queue.Queue[cell.TemplateKey]
}

// New returns a controller that watches a cell.
func New(c *cell.Cell) *Controller {
	h := &Controller{cell: c, queue: queue.New[cell.TemplateKey]("history")}
	c.Templates.Subscribe(h.templateChanged)
	c.SubscribeBindings(func(_ cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if now != nil && (old == nil || old.Spec.Resource.UID != now.Spec.Resource.UID) {
			h.bound(now)
		}
	})
	c.Revisions.Subscribe(h.revisionChanged)
	return h
}

// Run reconciles until the context ends.
func (h *Controller) Run(ctx context.Context, workers int) { h.queue.Run(ctx, workers, h.Reconcile) }

func (h *Controller) templateChanged(key cell.TemplateKey, old, now *cell.Template) {
	if _, has := revisions.KindOf(key.GroupVersionKind); !has {
		return
	}
	if old != nil && now != nil && old.UID == now.UID && old.Digest == now.Digest && old.Claim == now.Claim && old.Deleting == now.Deleting && old.Frozen == now.Frozen {
		return
	}
	h.queue.AddNow(key)
}

func (h *Controller) bound(binding *workv1alpha2.ResourceBinding) {
	ref := &binding.Spec.Resource
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if _, has := revisions.KindOf(gv.WithKind(ref.Kind)); err == nil && has {
		h.queue.AddNow(cell.TemplateKey{GroupVersionKind: gv.WithKind(ref.Kind), Key: cell.Key{Namespace: ref.Namespace, Name: ref.Name}})
	}
}

func (h *Controller) revisionChanged(old, now *cell.Revision) {
	for _, revision := range []*cell.Revision{old, now} {
		switch {
		case revision == nil:
		case revision.Of.Name != "":
			h.queue.Add(revision.Of)
		case revision == now:
			h.queue.Add(cell.TemplateKey{GroupVersionKind: revision.Kind.GroupVersionKind, Key: revision.Key})
		}
	}
}

// unservedPoll is how often the revisions of a workload are checked whose kind is not served.
const unservedPoll = time.Minute

// Reconcile stores the present revision of a workload, and removes those beyond its limit.
func (h *Controller) Reconcile(ctx context.Context, key cell.TemplateKey) error {
	kind, has := revisions.KindOf(key.GroupVersionKind)
	template := h.cell.Templates.Get(key)
	switch {
	case !has:
		return h.orphaned(ctx, key)
	case h.cell.Templates.Kind(kind) == nil:
		return nil // the engine was told to skip the kind
	case !h.cell.Templates.Known(kind) || !h.cell.Templates.Known(key.GroupVersionKind):
		return queue.Later{After: unservedPoll}
	case template == nil:
		return h.gone(ctx, key)
	case template.Frozen:
		return nil
	case template.Deleting:
		return h.remove(ctx, h.cell.Revisions.Of(key)) // it may wait for them
	}

	// 1. Only what is propagated has revisions: the rest is only stored.
	if binding := h.cell.Binding(key.Binding()); binding == nil || binding.Spec.Resource.UID != template.UID {
		return nil
	}
	stored := h.cell.Revisions.Of(key)
	if slices.ContainsFunc(stored, func(r *cell.Revision) bool { return r.Frozen }) {
		return nil // they are moving; when they have arrived, there is an event
	}

	// 2. Plan by what is cached. Nearly always there is nothing to do.
	workload, err := template.Object()
	if err != nil {
		return err
	}
	own, others := divide(stored, string(template.UID))
	if p := planFor(workload, own); len(others) == 0 && p.isEmpty() {
		return nil
	}

	// 3. Plan again by what is stored: a workload that has just moved here may be in the cache before its revisions.
	workload, err = h.cell.ReadTemplate(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if workload.GetUID() != template.UID || workload.GetDeletionTimestamp() != nil || workload.GetLabels()[names.RebalanceStatusLabel] != "" {
		return nil // the event is under way
	}
	if own, err = h.cell.Revisions.List(ctx, workload); err != nil {
		return err
	}
	own, _ = divide(own, string(template.UID))
	if slices.ContainsFunc(own, func(r *cell.Revision) bool { return r.Frozen }) {
		return nil
	}
	return h.carryOut(ctx, workload, own, others)
}

// divide returns the revisions of the workload with a UID, and those of earlier workloads of its name.
func divide(stored []*cell.Revision, uid string) (own, others []*cell.Revision) {
	for _, revision := range stored {
		switch {
		case revision.Deleting:
		case string(revision.OwnerUID) == uid:
			own = append(own, revision)
		default:
			others = append(others, revision)
		}
	}
	return own, others
}

// plan is a plan by which a paused workload gets no revision. It keeps those it has: the newest of them is what it runs.
type plan struct{ revisions.Plan }

func planFor(workload *unstructured.Unstructured, own []*cell.Revision) plan {
	records := make([]revisions.Record, len(own))
	for i, revision := range own {
		records[i] = revision.Record
	}
	p := plan{revisions.Next(revisions.Present(workload), records, revisions.Limit(workload))}
	if p.Create && revisions.Paused(workload) {
		p.Create, p.Remove = false, nil
	}
	return p
}

func (p plan) isEmpty() bool { return !p.Create && p.Renew < 0 && len(p.Remove) == 0 }

func (h *Controller) carryOut(ctx context.Context, workload *unstructured.Unstructured, own, others []*cell.Revision) error {
	p := planFor(workload, own)
	if p.Create {
		if err := h.create(ctx, workload, p.Number); err != nil {
			return err
		}
	}
	if p.Renew >= 0 {
		err := h.cell.Revisions.Update(ctx, own[p.Renew], func(revision *unstructured.Unstructured) { revisions.Renew(revision, workload, p.Number) })
		if err != nil {
			return err
		}
	}
	for _, i := range p.Remove {
		others = append(others, own[i])
	}
	return h.remove(ctx, others)
}

// mostNames is how many names are tried before others are asked to make room.
const mostNames = 3

// create stores the present revision. If another object has its name, the next name is tried.
func (h *Controller) create(ctx context.Context, workload *unstructured.Unstructured, number int64) error {
	tried := 0
	for name := range revisions.Names(workload) {
		revision, err := revisions.New(workload, name, number)
		if err != nil {
			return err
		}
		err = h.cell.Revisions.Create(ctx, revision)
		if tried++; !apierrors.IsAlreadyExists(err) || tried == mostNames {
			return err
		}
		stored, listErr := h.cell.Revisions.List(ctx, workload)
		if listErr != nil || len(stored) > 0 && !planFor(workload, stored).Create {
			return listErr // another engine was faster; the event is under way
		}
	}
	return nil
}

// gone deletes the revisions of a workload that does not exist any more. It does not wait for the garbage collector.
func (h *Controller) gone(ctx context.Context, key cell.TemplateKey) error {
	stored := h.cell.Revisions.Of(key)
	if len(stored) == 0 {
		return nil
	}
	// Workloads and revisions are watched separately: the revisions may be seen first.
	if exists, err := h.cell.TemplateExists(ctx, key); err != nil || exists {
		return err
	}
	return h.remove(ctx, stored)
}

// orphaned deletes a revision whose workload was deleted without what belongs to it.
func (h *Controller) orphaned(ctx context.Context, key cell.TemplateKey) error {
	revision := h.cell.Revisions.Get(key)
	if revision == nil || revision.Of.Name != "" {
		return nil
	}
	return h.remove(ctx, []*cell.Revision{revision})
}

func (h *Controller) remove(ctx context.Context, stored []*cell.Revision) error {
	for _, revision := range stored {
		if revision.Deleting || revision.Frozen {
			continue
		}
		if err := h.cell.Revisions.Delete(ctx, revision); err != nil {
			return err
		}
	}
	return nil
}
