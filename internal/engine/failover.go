package engine

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cellplane/cellplane/internal/engine/appfailover"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/eviction"
	"github.com/cellplane/cellplane/internal/engine/failback"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/engine/tainteviction"
)

// Failover configures how workloads leave clusters; the zero value is valid.
type Failover struct {
	// WithoutTaints disables eviction for taints with the effect NoExecute.
	WithoutTaints bool
	// Taints are the options of eviction for taints.
	Taints tainteviction.Options
	// GracePeriod is how long an old copy is kept while the new one is unhealthy; 0 means ten minutes.
	GracePeriod time.Duration
}

// evictionWorkers are as many as the scheduler has: a lost cluster means many evictions, and each schedules a binding.
const evictionWorkers = schedulerWorkers

// controllers returns a function that runs all controllers that move workloads out of clusters, and back, and their metrics.
func (f *Failover) controllers(state *cell.Cell, s *scheduler.Scheduler, recorder *events.Recorder) (run func(context.Context), metrics []prometheus.Collector) {
	runs := []func(context.Context, int){
		eviction.New(state, recorder, f.GracePeriod).Run,
		appfailover.New(state, s, recorder).Run,
		failback.New(state, s, recorder).Run,
	}
	if !f.WithoutTaints {
		taints := tainteviction.New(state, s, recorder, f.Taints)
		runs, metrics = append(runs, taints.Run), append(metrics, taints)
	}
	return func(ctx context.Context) {
		var wait sync.WaitGroup
		for _, run := range runs {
			wait.Go(func() { run(ctx, evictionWorkers) })
		}
		wait.Wait()
	}, metrics
}
