package engine

import (
	"context"
	"sync"
	"time"

	"github.com/cellplane/cellplane/internal/engine/appfailover"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/eviction"
	"github.com/cellplane/cellplane/internal/engine/failback"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/engine/tainteviction"
)

// Failover says how workloads leave clusters; the zero value will do.
type Failover struct {
	// WithoutTaints leaves workloads in clusters with taints of the effect NoExecute.
	WithoutTaints bool
	// Taints are the options of eviction for taints.
	Taints tainteviction.Options
	// GracePeriod is how long an old copy outlasts an unhealthy new one; 0 means ten minutes.
	GracePeriod time.Duration
}

// evictionWorkers evict at once: a lost cluster is a lot of work, and each of them places a binding.
const evictionWorkers = schedulerWorkers

// controllers returns what runs all that moves workloads out of clusters, and back.
func (f *Failover) controllers(state *cell.Cell, plan *scheduler.Scheduler, recorder *events.Recorder) func(context.Context) {
	runs := []func(context.Context, int){
		eviction.New(state, recorder, f.GracePeriod).Run,
		appfailover.New(state, plan, recorder).Run,
		failback.New(state, plan, recorder).Run,
	}
	if !f.WithoutTaints {
		runs = append(runs, tainteviction.New(state, plan, recorder, f.Taints).Run)
	}
	return func(ctx context.Context) {
		var wait sync.WaitGroup
		for _, run := range runs {
			wait.Go(func() { run(ctx, evictionWorkers) })
		}
		wait.Wait()
	}
}
