package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/slots"
)

// backupCost compares writes with and without the hub manager, which backs them up. Rounds alternate, so that other
// load on the machine affects both.
func (w *world) backupCost(ctx context.Context) error {
	var costs [2]usage
	var counts [2]int
	late := lags{}
	for range w.rounds {
		for i, when := range []string{"alone", "backed up"} {
			if err := w.setBackup(ctx, i == 1); err != nil {
				return err
			}
			before, err := w.lags(ctx, i == 1)
			if err != nil {
				return err
			}
			result, cost := w.round(ctx, when, nil)
			after, err := w.lags(ctx, i == 1)
			if err != nil {
				return err
			}
			late.add(after, before)
			costs[i], counts[i] = costs[i].plus(cost), counts[i]+result.count()
		}
	}
	costs[0].print("without backup", "write", counts[0])
	costs[1].print("with backup", "write", counts[1])
	without, with := costs[0].per(counts[0]), costs[1].per(counts[1])
	fmt.Printf("CPU of all processes per write, %d rounds each: %.2f ms without backup, %.2f ms with it (%+.0f %%; target: at most +15 %%)\n", w.rounds, without, with, 100*(with/without-1))
	fmt.Printf("backup lag p99: at most %.3f s (target: under 2 s)\n\n", late.p99())
	return nil
}

// setBackup pauses the hub manager, or resumes it and waits until it has caught up.
func (w *world) setBackup(ctx context.Context, on bool) error {
	began := time.Now()
	for _, p := range w.processes("hub-manager") {
		if !on {
			if err := p.Pause(); err != nil {
				return err
			}
			continue
		}
		if err := p.Resume(); err != nil {
			return err
		}
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	if !on {
		return nil
	}
	return w.poll(ctx, func() (bool, error) {
		var all v1alpha1.CellList
		if err := w.hub.List(ctx, &all); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(all.Items, func(cell v1alpha1.Cell) bool {
			backup := cell.Status.Backup
			return !meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellBackedUp) || backup == nil || backup.PendingKeys > 0 || backup.UpToDateAt.Time.Before(began)
		}), nil
	})
}

// addCell has a fourth cell join under load.
func (w *world) addCell(ctx context.Context) error {
	if err := w.federation.AddCell(ctx, newCell); err != nil {
		return err
	}
	topology, err := w.topology(ctx)
	if err != nil {
		return err
	}
	plan, err := cells.Preview(topology.Spec, cells.Add(newCell, 1))
	if err != nil {
		return err
	}
	moving := map[slots.Slot]bool{}
	for _, flow := range plan.Flows {
		for _, slot := range flow.Slots {
			moving[slot] = true
		}
	}
	calm, load := w.quietly(ctx, "before", moving)
	idle := w.idle(ctx)
	before := w.cpu(ctx)
	loadCtx, stop := context.WithCancel(ctx)
	defer stop()
	var during writes
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.write(loadCtx, moving, &during)
	}()
	began := time.Now()
	if _, err := w.change(ctx, cells.Add(newCell, 1)); err != nil {
		return err
	}
	var moved int64
	var firstMove, lastMove time.Time
	err = w.awaitStable(ctx, func(t *v1alpha1.CellTopology) {
		during.enter(string(t.Status.Phase))
		if t.Status.Phase == v1alpha1.TopologyMoving && firstMove.IsZero() {
			firstMove = time.Now()
		}
		if change := t.Status.Change; change != nil && change.MovedObjects > moved {
			moved, lastMove = change.MovedObjects, time.Now()
		}
	})
	took := time.Since(began)
	stop()
	<-ended
	if err != nil {
		return err
	}
	during.print("during")
	spent := w.cpu(ctx).since(before).less(idle, took.Seconds())
	w.quietly(ctx, "after", moving)
	quiet, busy := quantile(calm.others, 0.99), quantile(during.others, 0.99)
	fmt.Printf("writes of others, p99: %.1f ms before, %.1f ms during (x %.1f; target: at most x 1.5)\n", quiet.Seconds()*1000, busy.Seconds()*1000, busy.Seconds()/max(quiet.Seconds(), 0.000001))
	fmt.Printf("%d objects moved in %.1f s, %.0f/s while moving (target: at least 1000/s); the whole change took %.1f s\n", moved, lastMove.Sub(firstMove).Seconds(), float64(moved)/max(lastMove.Sub(firstMove).Seconds(), 0.001), took.Seconds())
	fmt.Printf("CPU of everything during the change, with its %d writes: %.1f s\n", during.count(), spent.sum().Seconds())
	load.print("of the load before the change", "write", calm.count())
	spent.less(load, float64(during.count())/float64(max(calm.count(), 1))).print("of the change without the writes", "object moved", int(moved))
	fmt.Println()
	return nil
}

// failOver kills a cell and takes over its slots.
func (w *world) failOver(ctx context.Context) error {
	const lost = "cell-b"
	for _, p := range w.processes(lost + "/") {
		if err := p.Halt(); err != nil {
			return err
		}
	}
	began := time.Now()
	moving, err := w.change(ctx, cells.Fail(lost))
	if err != nil {
		return err
	}
	if err := w.awaitStable(ctx, func(*v1alpha1.CellTopology) {}); err != nil {
		return err
	}
	stable := time.Since(began)
	list, err := w.gateway.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=bench"})
	if err != nil {
		return err
	}
	served := time.Since(began)
	fmt.Printf("failover of %d slots: promoted after %.1f s, %d of %d objects listed after %.1f s (target: under 10 s)\n", len(moving), stable.Seconds(), len(list.Items), w.objects, served.Seconds())
	if len(list.Items) != w.objects {
		return fmt.Errorf("%d objects are missing", w.objects-len(list.Items))
	}
	return nil
}
