package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/agent/push"
	"github.com/cellplane/cellplane/internal/agent/usage"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// reporting reports what the workloads of the cluster use.
type reporting struct {
	cluster   string
	gateway   rest.Interface
	collector *usage.Collector
	interval  time.Duration
}

// run reports until the context ends.
func (r *reporting) run(ctx context.Context) {
	r.collector.Run(ctx, func(ctx context.Context) {
		reporter, failing := push.New(r.send), ""
		for ctx.Err() == nil {
			err := r.report(ctx, reporter)
			if said := fmt.Sprint(err); err != nil && said != failing && ctx.Err() == nil {
				failing = said
				klog.FromContext(ctx).Info("cannot report metrics of workloads, retrying", "err", err)
			} else if err == nil {
				failing = ""
			}
			select {
			case <-ctx.Done():
			case <-time.After(r.interval*9/10 + rand.N(r.interval/5+1)): // agents must not all report at once
			}
		}
	})
}

func (r *reporting) report(ctx context.Context, reporter *push.Reporter) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	all, err := r.collector.Collect(ctx, reporter.Wanted(), time.Now())
	if err != nil {
		return err
	}
	return reporter.Report(ctx, all)
}

// send sends a report to the gateway.
func (r *reporting) send(ctx context.Context, spec *metricsv1alpha1.MetricsReportSpec) (*metricsv1alpha1.MetricsReportStatus, error) {
	body, err := json.Marshal(metricsv1alpha1.MetricsReport{Spec: *spec})
	if err != nil {
		return nil, fmt.Errorf("encoding a report: %w", err)
	}
	data, err := r.gateway.Post().AbsPath(views.ReportsPath+r.cluster).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reporting to the gateway: %w", err)
	}
	answer := &metricsv1alpha1.MetricsReport{}
	if err := json.Unmarshal(data, answer); err != nil {
		return nil, fmt.Errorf("decoding the answer to a report: %w", err)
	}
	return &answer.Status, nil
}
