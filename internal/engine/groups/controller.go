package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/cellstates"
	"github.com/cellplane/cellplane/internal/engine/queue"
)

const (
	// debounce delays the correction of a record after changes of bindings.
	debounce = time.Second
	// resync is how often all records are looked at.
	resync = 30 * time.Second
)

// Controller keeps the records of groups correct.
type Controller struct {
	guard   *Guard
	hub     bool
	changed func(namespace, group string)
	queue   *queue.Queue[group]
	seen    map[group]string // the versions of the records at the last review
}

// New returns a controller for the groups of a cell. The parameter hub says that the cell is the hub, whose engine removes what cells that are
// gone have recorded. Changed is called for groups whose record has changed.
func New(guard *Guard, hub bool, changed func(namespace, group string)) *Controller {
	c := &Controller{guard: guard, hub: hub, changed: changed, queue: queue.New[group]("workload-groups")}
	guard.cell.SubscribeBindings(func(_ cell.Key, old, now *workv1alpha2.ResourceBinding) {
		for _, binding := range []*workv1alpha2.ResourceBinding{old, now} {
			for _, one := range groupsOf(binding) {
				c.queue.AddAfter(one, debounce)
			}
		}
	})
	return c
}

// Run corrects records until the context ends.
func (c *Controller) Run(ctx context.Context, workers int) {
	var wait sync.WaitGroup
	wait.Go(func() { c.queue.Run(ctx, workers, c.Reconcile) })
	for ctx.Err() == nil {
		if err := c.review(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("cannot review the groups of workloads, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(resync):
		}
	}
	wait.Wait()
}

// Reconcile writes the workloads of this cell to the record of a group.
func (c *Controller) Reconcile(ctx context.Context, one group) error {
	_, err := c.guard.write(ctx, one, func(*cellplanev1alpha1.WorkloadGroup) string { return "" })
	return err
}

// review reports what has changed since the last review, and queues the groups in which this cell has recorded workloads: some may not exist any
// more. On the hub, it removes those of cells
// that are gone.
func (c *Controller) review(ctx context.Context) error {
	var records cellplanev1alpha1.WorkloadGroupList
	if err := c.guard.hub.List(ctx, &records); err != nil {
		return fmt.Errorf("listing WorkloadGroups: %w", err)
	}
	before := c.seen
	c.seen = make(map[group]string, len(records.Items))
	for i := range records.Items {
		spec, version := &records.Items[i].Spec, records.Items[i].ResourceVersion
		one := group{spec.Namespace, spec.Group}
		c.seen[one] = version
		if before[one] != version {
			c.changed(one.namespace, one.label)
		}
		if slices.ContainsFunc(spec.Workloads, func(w cellplanev1alpha1.GroupedWorkload) bool { return w.Cell == c.guard.cell.Name }) {
			c.queue.Add(one)
		}
	}
	for one := range before {
		if _, exists := c.seen[one]; !exists {
			c.changed(one.namespace, one.label)
		}
	}
	if !c.hub || len(records.Items) == 0 {
		return nil
	}
	return c.forgetGone(ctx, records.Items)
}

// forgetGone removes the workloads that cells that are gone have recorded.
func (c *Controller) forgetGone(ctx context.Context, records []cellplanev1alpha1.WorkloadGroup) error {
	states, err := cellstates.Read(ctx, c.guard.hub)
	if err != nil {
		return err
	}
	var errs []error
	for i := range records {
		record := &records[i]
		before := len(record.Spec.Workloads)
		record.Spec.Workloads = slices.DeleteFunc(record.Spec.Workloads, func(w cellplanev1alpha1.GroupedWorkload) bool {
			return w.Cell != c.guard.cell.Name && states.Gone(w.Cell)
		})
		if len(record.Spec.Workloads) == before {
			continue
		}
		if err := c.guard.store(ctx, record); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("removing lost cells from WorkloadGroup %s: %w", record.Name, err))
		}
	}
	return errors.Join(errs...)
}
