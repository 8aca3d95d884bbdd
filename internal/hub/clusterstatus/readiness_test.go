package clusterstatus

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

func TestReadyChangesWhenItLasts(t *testing.T) {
	type step struct {
		after time.Duration
		saw   metav1.ConditionStatus
		want  metav1.ConditionStatus
	}
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	for name, test := range map[string]struct {
		current metav1.ConditionStatus // empty if there is none yet
		steps   []step
	}{
		"the first word counts at once":      {"", []step{{0, no, no}}},
		"the first good word too":            {"", []step{{0, yes, yes}}},
		"a failure has to last":              {yes, []step{{0, no, yes}, {10, no, yes}, {10, no, yes}, {10, no, no}}},
		"a recovery has to last":             {no, []step{{0, yes, no}, {20, yes, no}, {10, yes, yes}}},
		"a stumble starts over":              {yes, []step{{0, no, yes}, {20, no, yes}, {10, yes, yes}, {10, no, yes}, {20, no, yes}, {10, no, no}}},
		"flapping changes nothing":           {no, []step{{0, yes, no}, {29, no, no}, {10, yes, no}, {29, no, no}}},
		"a restart begins with what is said": {yes, []step{{1000, no, yes}, {30, no, no}}},
		"from unknown":                       {metav1.ConditionUnknown, []step{{0, yes, metav1.ConditionUnknown}, {30, yes, yes}}},
	} {
		t.Run(name, func(t *testing.T) {
			options := Options{}.withDefaults()
			var r readiness
			var current *metav1.Condition
			if test.current != "" {
				current = &metav1.Condition{Status: test.current}
			}
			now := time.Unix(1e9, 0)
			for i, step := range test.steps {
				now = now.Add(step.after * time.Second)
				next := r.decide(now, current, metav1.Condition{Status: step.saw}, &options)
				if next.Status != step.want {
					t.Fatalf("step %d: %s, want %s", i, next.Status, step.want)
				}
				current = &next
			}
		})
	}
}

// The defaults are Karmada's.
func TestDefaultTimes(t *testing.T) {
	want := Options{
		Interval: 10 * time.Second, ProbeTimeout: 10 * time.Second, SuccessThreshold: 30 * time.Second, FailureThreshold: 30 * time.Second,
		MonitorInterval: 5 * time.Second, MonitorGracePeriod: 40 * time.Second, StartupGracePeriod: time.Minute,
	}
	if got := (Options{}).withDefaults(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	given := Options{Interval: 1, ProbeTimeout: 2, SuccessThreshold: 3, FailureThreshold: 4, MonitorInterval: 5, MonitorGracePeriod: 6, StartupGracePeriod: 7}
	if got := given.withDefaults(); got != given {
		t.Errorf("the options %+v became %+v", given, got)
	}
}

func TestSilentAgents(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := &collector{controller: &Controller{options: Options{}.withDefaults()}}
	for name, test := range map[string]struct {
		age, renewed time.Duration // ago; never renewed if negative
		want         string
	}{
		"just joined":       {59 * time.Second, -1, ""},
		"never came up":     {time.Minute, -1, reasonNeverReported},
		"reports":           {time.Hour, 39 * time.Second, ""},
		"stopped reporting": {time.Hour, 40 * time.Second, reasonUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-test.age))}}
			lease := &coordinationv1.Lease{}
			if test.renewed >= 0 {
				lease.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-test.renewed)}
			}
			got := ""
			if condition := c.silence(now, cluster, lease); condition != nil {
				got = condition.Reason
				if condition.Status != metav1.ConditionUnknown {
					t.Errorf("the status is %s", condition.Status)
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
