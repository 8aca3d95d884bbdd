package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/slots"
)

// backupCost compares writes with and without the hub manager, which is what backs them up.
func (w *world) backupCost(ctx context.Context) error {
	perWrite := func(when string) (time.Duration, *writes) {
		before := w.cpu(ctx)
		result := w.writeFor(ctx, nil)
		spent := w.cpu(ctx).since(before)
		spent.print(when, "write", len(result.others))
		return spent.sum() / time.Duration(max(len(result.others), 1)), result
	}
	managers := w.processes("hub-manager")
	for _, p := range managers {
		if err := p.Pause(); err != nil {
			return err
		}
	}
	without, _ := perWrite("without backup")
	for _, p := range managers {
		if err := p.Resume(); err != nil {
			return err
		}
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	time.Sleep(w.settings.load) // it takes its lease back and catches up
	with, result := perWrite("with backup")
	result.print("backed up")
	lag, err := w.backupLag(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("CPU of all processes per write: %.2f ms without backup, %.2f ms with it (%+.0f %%; target: at most +15 %%)\n", without.Seconds()*1000, with.Seconds()*1000, 100*(with.Seconds()/without.Seconds()-1))
	fmt.Printf("backup lag p99: at most %.3f s (target: under 2 s)\n\n", lag)
	return nil
}

// backupLag returns the upper bound of the bucket that the 99th percentile falls into.
func (w *world) backupLag(ctx context.Context) (float64, error) {
	address, err := w.federation.Address("hub-manager")
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return 0, err
	}
	return p99(families["cellplane_backup_lag_seconds"]), nil
}

func p99(family *dto.MetricFamily) float64 {
	total, buckets, bounds := uint64(0), map[float64]uint64{}, []float64{}
	for _, metric := range family.GetMetric() {
		total += metric.GetHistogram().GetSampleCount()
		for _, bucket := range metric.GetHistogram().GetBucket() {
			if _, known := buckets[bucket.GetUpperBound()]; !known {
				bounds = append(bounds, bucket.GetUpperBound())
			}
			buckets[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	for _, bound := range bounds {
		if float64(buckets[bound]) >= 0.99*float64(total) {
			return bound
		}
	}
	return -1
}

// addCell lets a fourth cell join under load.
func (w *world) addCell(ctx context.Context) error {
	if err := w.federation.AddCell(ctx, newCell); err != nil {
		return err
	}
	topology, err := w.topology(ctx)
	if err != nil {
		return err
	}
	plan, err := cells.Foresee(topology.Spec, cells.Add(newCell, 1))
	if err != nil {
		return err
	}
	moving := map[slots.Slot]bool{}
	for _, flow := range plan.Flows {
		for _, slot := range flow.Slots {
			moving[slot] = true
		}
	}
	idle := w.idle(ctx)
	loaded := w.cpu(ctx)
	calm := w.writeFor(ctx, moving)
	calm.print("before")
	load := w.cpu(ctx).since(loaded).less(idle, w.settings.load.Seconds())
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
	err = w.settled(ctx, func(t *v1alpha1.CellTopology) {
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
	spent := w.cpu(ctx).since(before)
	spent = spent.less(idle, time.Since(began).Seconds())
	w.writeFor(ctx, moving).print("after")
	fmt.Printf("%d objects moved in %.1f s, %.0f/s while moving (target: at least 1000/s); the whole change took %.1f s\n", moved, lastMove.Sub(firstMove).Seconds(), float64(moved)/max(lastMove.Sub(firstMove).Seconds(), 0.001), took.Seconds())
	fmt.Printf("CPU of everything during the change, with its %d writes: %.1f s\n", during.count(), spent.sum().Seconds())
	load.print("of the load before the change", "write", calm.count())
	spent.less(load, float64(during.count())/float64(max(calm.count(), 1))).print("of the change without the writes", "object moved", int(moved))
	fmt.Println()
	return nil
}

// failOver kills a cell and takes its share over.
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
	if err := w.settled(ctx, func(*v1alpha1.CellTopology) {}); err != nil {
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
