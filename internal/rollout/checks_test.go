package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
)

// refusal returns why the API of the kind would refuse a command.
func (w *world) refusal(c Command) error {
	switch {
	case min(c.Replicas, c.Surge, c.Unavailable, c.Partition) < 0:
		return fmt.Errorf("a number of %+v is negative", c)
	case !w.kind.surges() && c.Unavailable == 0, c.Surge+c.Unavailable == 0:
		return fmt.Errorf("%+v allows nothing", c)
	case !w.kind.surges() && c.Surge > 0, !w.kind.pauses() && c.Paused, !w.kind.partitions() && c.Partition > 0:
		return fmt.Errorf("%+v has fields that a %s does not have", c, w.kind)
	case c.Revision == "":
		return fmt.Errorf("%+v has no revision", c)
	}
	return nil
}

// check compares the pods that exist with the bounds. Pods that failed by themselves are not the planner's fault.
func (w *world) check() error {
	for _, m := range w.members {
		if entry, known := w.ledger[m.name]; known && entry.Seq > 0 {
			if err := w.refusal(entry.Command); err != nil {
				return err
			}
		}
	}
	var sum controllermodel.Count
	for _, m := range w.members {
		if m.lost {
			continue
		}
		c := m.workload.Count()
		sum.Pods, sum.Available, sum.Failed = sum.Pods+c.Pods, sum.Available+c.Available, sum.Failed+c.Failed
	}
	updated := w.updated()
	if w.kind == StatefulSet {
		// If a pod fails during scaling in, it is replaced before the highest ordinal goes.
		sum.Pods -= sum.Failed
	}
	switch {
	case sum.Pods > w.mostPods:
		return fmt.Errorf("there are %d pods, and may be %d", sum.Pods, w.mostPods)
	case sum.Available+sum.Failed < w.leastAvailable:
		return fmt.Errorf("%d pods are available and %d failed, and %d must be", sum.Available, sum.Failed, w.leastAvailable)
	case w.kind == CloneSet && w.bounds.Partition > 0 && updated > w.mostUpdated:
		return fmt.Errorf("%d pods are updated, and may be %d", updated, w.mostUpdated)
	}
	return nil
}

// updated returns how many pods are updated, apart from those that a CloneSet created to keep a revision to which it was taken back.
func (w *world) updated() int {
	updated := 0
	for _, m := range w.members {
		if !m.lost {
			c := m.workload.Count()
			updated += c.Revisions[w.revision] - c.Restored[w.revision]
		}
	}
	return updated
}

// calm ends all disturbances.
func (w *world) calm() {
	w.logf("calm")
	for _, m := range w.members {
		m.cutOff, m.dead, m.held, m.open = false, false, false, false
		w.back(m)
	}
	w.paused = false
	if strings.HasPrefix(w.revision, controllermodel.Bad) {
		w.update(false)
	}
	bad := strings.HasPrefix(w.previous, controllermodel.Bad)
	for _, entry := range w.ledger {
		bad = bad || slices.ContainsFunc(entry.Revisions, func(r string) bool { return strings.HasPrefix(r, controllermodel.Bad) })
	}
	if bad && w.bounds.Partition > 0 {
		w.bounds.Partition = 0 // it would keep pods of a bad revision, in one cluster too
		w.changed()
	}
}

// round lets everybody do everything once. It returns the plan.
func (w *world) round(check func()) Result {
	e := w.engines[0]
	for _, m := range w.members {
		m.workload.Run()
		check()
		m.workload.Unstick()
		m.show()
		w.observe(e, m, 0)
	}
	w.read(e)
	result := w.plan(e)
	for _, m := range w.members {
		w.writeWork(e, m)
		w.deliver(e, m, false)
	}
	check()
	return result
}

// finished reports whether a plan says that all is done.
func finished(result Result) bool {
	return !slices.ContainsFunc(result.Decisions, func(d Decision) bool { return !d.Done || d.Commanded })
}

// checkEnd checks the end of a run: all replicas are there, available, and updated as far as the partition goes.
func (w *world) checkEnd() error {
	updated := 0
	for _, m := range w.members {
		c := m.workload.Count()
		if c.Pods != m.share || c.Available != m.share {
			return fmt.Errorf("%s has %d pods, %d of them available, and should have %d", m.name, c.Pods, c.Available, m.share)
		}
		updated += c.Revisions[w.revision]
	}
	if wanted := w.bounds.Replicas - w.bounds.Partition; updated < wanted {
		return fmt.Errorf("%d pods are updated, and %d should be", updated, wanted)
	}
	return nil
}
