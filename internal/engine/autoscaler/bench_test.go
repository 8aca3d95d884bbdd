package autoscaler

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/autoscale"
)

// BenchmarkDecision measures a decision about a workload in three clusters, of which one is silent, until it is known that nothing has to be written. With 5000 autoscalers, each
// of which decides when each cluster reports and once more in 15 seconds, there are 1333 in a second.
func BenchmarkDecision(b *testing.B) {
	binding := placed(policyv1alpha1.ReplicaSchedulingTypeDivided, 12, 4, 4, 4)
	spec := &autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 100, Metrics: []autoscalingv2.MetricSpec{cpu}}
	s := &scaler{spec: spec, status: &autoscalingv2.HorizontalPodAutoscalerStatus{}}
	reports, history, now := map[string]*report{"m1": using(4, 50), "m2": using(4, 45)}, &autoscale.History{}, start
	for b.Loop() {
		now = now.Add(4 * time.Second)
		o := observe(evidence{binding: binding, reports: reports}, spec.Metrics)
		d := autoscale.Decide(spec, o.workload, o.readings, history, autoscale.DefaultSettings, now)
		status := s.next()
		decided(status, o, d, now)
		if worthWriting(s.status, status, start, now) {
			s.status = status
		}
	}
}
