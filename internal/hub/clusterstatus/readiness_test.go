package clusterstatus

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestSilentAgents looks at the lease of an agent again and again. Only the time between renewals counts, by our clock: that of the agent may be
// hours off, and may jump.
func TestSilentAgents(t *testing.T) {
	type look struct {
		after   time.Duration // the look before
		renewed time.Duration // the time in the lease, relative to our clock at the start; never renewed if it is never
		want    string
	}
	const never = time.Duration(-1 << 62)
	for name, looks := range map[string][]look{
		"never came up":                  {{0, never, ""}, {59 * time.Second, never, ""}, {time.Second, never, reasonNeverReported}},
		"came up late":                   {{0, never, ""}, {time.Minute, never, reasonNeverReported}, {time.Second, time.Minute, ""}},
		"stopped reporting":              {{0, 0, ""}, {30 * time.Second, 30 * time.Second, ""}, {39 * time.Second, 30 * time.Second, ""}, {time.Second, 30 * time.Second, reasonUnknown}},
		"its clock is an hour slow":      {{0, -time.Hour, ""}, {30 * time.Second, -time.Hour + 30*time.Second, ""}, {39 * time.Second, -time.Hour + 69*time.Second, ""}},
		"its clock is an hour fast":      {{0, time.Hour, ""}, {39 * time.Second, time.Hour, ""}, {time.Second, time.Hour, reasonUnknown}},
		"its clock jumps back":           {{0, 0, ""}, {39 * time.Second, -time.Hour, ""}, {39 * time.Second, -time.Hour + 39*time.Second, ""}},
		"it had stopped before we began": {{0, -time.Hour, ""}, {40 * time.Second, -time.Hour, reasonUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &collector{controller: &Controller{options: Options{}.withDefaults()}}
			start := time.Unix(1e9, 0)
			now := start
			for i, look := range looks {
				now = now.Add(look.after)
				lease := &coordinationv1.Lease{}
				if look.renewed != never {
					lease.Spec.RenewTime = &metav1.MicroTime{Time: start.Add(look.renewed)}
				}
				got := ""
				if condition := c.silence(now, lease); condition != nil {
					got = condition.Reason
					if condition.Status != metav1.ConditionUnknown {
						t.Errorf("the status is %s", condition.Status)
					}
				}
				if got != look.want {
					t.Errorf("look %d: got %q, want %q", i, got, look.want)
				}
			}
		})
	}
}
