package cronscaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, "2026-03-"+text+"Z")
	if err != nil {
		panic(err)
	}
	return t
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name, schedule, zone string
		recorded             string
		now                  string
		due, next            string
	}{
		{"a new rule", "0 9 * * *", "UTC", "", "02T09:00:00", "", "03T09:00:00"},
		{"not yet", "0 9 * * *", "UTC", "02T09:00:00", "02T08:59:59", "", "02T09:00:00"},
		{"on time", "0 9 * * *", "UTC", "02T09:00:00", "02T09:00:00", "02T09:00:00", "03T09:00:00"},
		{"late", "0 9 * * *", "UTC", "02T09:00:00", "02T09:00:50", "02T09:00:00", "03T09:00:00"},
		{"too late", "0 9 * * *", "UTC", "02T09:00:00", "02T09:02:00", "", "03T09:00:00"},
		{"the last of several", "* * * * *", "UTC", "02T09:00:00", "02T09:05:30", "02T09:05:00", "02T09:06:00"},
		{"in a time zone", "0 9 * * *", "Asia/Shanghai", "", "02T00:00:00", "", "02T01:00:00"},
		{"a schedule that was changed", "0 9 * * *", "UTC", "02T08:00:00", "02T08:00:10", "", "02T09:00:00"},
		{"a schedule that comes sooner now", "0 * * * *", "UTC", "03T09:00:00", "02T09:30:00", "", "02T10:00:00"},
		{"a delay that is shorter now", "@every 1m", "UTC", "02T10:00:00", "02T09:30:00", "", "02T09:31:00"},
		{"a delay", "@every 1h", "UTC", "02T09:30:00", "02T09:00:00", "", "02T09:30:00"},
		{"after a delay", "@every 1h", "UTC", "02T09:30:00", "02T09:30:01", "02T09:30:00", "02T10:30:01"},
		{"never", "0 0 30 2 *", "UTC", "", "02T09:30:01", "", ""},
	} {
		schedule, err := parse(&autoscalingv1alpha1.CronFederatedHPARule{Schedule: c.schedule, TimeZone: &c.zone})
		if err != nil {
			t.Fatal(err)
		}
		moment := func(text string) time.Time {
			if text == "" {
				return time.Time{}
			}
			return at(text)
		}
		due, next := plan(schedule, moment(c.recorded), at(c.now))
		if !due.Equal(moment(c.due)) || !next.Equal(moment(c.next)) {
			t.Errorf("%s: due is %v and next %v", c.name, due.UTC(), next.UTC())
		}
	}
}

func TestWrongSchedules(t *testing.T) {
	for want, rule := range map[string]autoscalingv1alpha1.CronFederatedHPARule{
		"not in the format of cron": {Schedule: "61 * * * *"},
		"there is no time zone":     {Schedule: "* * * * *", TimeZone: ptr.To("Europe/Atlantis")},
		"timeZone both have":        {Schedule: "TZ=UTC * * * * *", TimeZone: ptr.To("UTC")},
	} {
		if _, err := parse(&rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v", rule.Schedule, err)
		}
	}
}

// clockwork is a controller with a clock that is set, and a target that answers as it is told.
type clockwork struct {
	*Controller
	t       *testing.T
	now     time.Time
	answer  error
	applied []string
}

func newClockwork(t *testing.T, rules ...autoscalingv1alpha1.CronFederatedHPARule) *clockwork {
	w := &clockwork{t: t, now: at("02T08:00:00")}
	w.Controller = newController(nil, func() time.Time { return w.now })
	w.apply = func(_ context.Context, _ *autoscalingv1alpha1.CronFederatedHPA, rule *autoscalingv1alpha1.CronFederatedHPARule) error {
		w.applied = append(w.applied, rule.Name)
		return w.answer
	}
	w.writeStatus = func(context.Context, *autoscalingv1alpha1.CronFederatedHPA) error { return nil }
	w.known[key] = &autoscalingv1alpha1.CronFederatedHPA{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: autoscalingv1alpha1.CronFederatedHPASpec{Rules: rules}}
	return w
}

var key = cell.Key{Namespace: "demo", Name: "web"}

// reconcile lets it be a time, and returns the rules that ran then, how long it waits for the next, and an error.
func (w *clockwork) reconcile(now string) (string, time.Duration, error) {
	w.now, w.applied = at(now), nil
	err := w.Reconcile(w.t.Context(), key)
	later := queue.Later{}
	if errors.As(err, &later) {
		err = nil
	}
	return fmt.Sprint(w.applied), later.After, err
}

func (w *clockwork) history(rule int) autoscalingv1alpha1.ExecutionHistory {
	return w.get(key).Status.ExecutionHistories[rule]
}

// TestRuns follows rules over some days: they run at their times, are suspended, fail and are retried, and their histories stay short.
func TestRuns(t *testing.T) {
	w := newClockwork(t,
		autoscalingv1alpha1.CronFederatedHPARule{Name: "up", Schedule: "0 9 * * *", TimeZone: ptr.To("UTC"), TargetReplicas: ptr.To[int32](9), SuccessfulHistoryLimit: ptr.To[int32](2), FailedHistoryLimit: ptr.To[int32](1)},
		autoscalingv1alpha1.CronFederatedHPARule{Name: "down", Schedule: "5 9 * * *", TimeZone: ptr.To("UTC"), TargetReplicas: ptr.To[int32](1), Suspend: ptr.To(true)},
		autoscalingv1alpha1.CronFederatedHPARule{Name: "wrong", Schedule: "0 25 * * *"},
	)
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", errors.New("a ProtectionPolicy"))
	for i, step := range []struct {
		now    string
		answer error
		ran    string
		after  time.Duration
		fails  bool
	}{
		{"02T08:00:00", nil, "[]", longestWait, false},
		{"02T08:55:00", nil, "[]", 5 * time.Minute, false},
		{"02T09:00:01", nil, "[up]", longestWait, false},
		{"02T09:00:02", nil, "[]", longestWait, false},
		{"03T09:00:00", errors.New("the gateway is down"), "[up]", 0, true},
		{"03T09:00:20", nil, "[up]", longestWait, false},
		{"04T09:00:00", refusal, "[up]", longestWait, false},
		{"04T09:00:01", nil, "[]", longestWait, false},
		{"05T09:00:00", errors.New("the gateway is down"), "[up]", 0, true},
		{"05T09:01:00", errors.New("the gateway is still down"), "[up]", longestWait, false},
		{"06T09:00:00", apierrors.NewTooManyRequests("it moves", 1), "[up]", 0, true},
		{"06T09:00:00", nil, "[up]", longestWait, false},
		{"07T10:00:00", nil, "[]", longestWait, false},
	} {
		w.answer = step.answer
		if ran, after, err := w.reconcile(step.now); ran != step.ran || after != step.after || (err != nil) != step.fails {
			t.Errorf("%d, at %s: %s ran, the next after %s, %v", i, step.now, ran, after, err)
		}
	}
	up := w.history(0)
	if len(up.SuccessfulExecutions) != 2 || len(up.FailedExecutions) != 1 || up.NextExecutionTime == nil {
		t.Fatalf("the history is %+v", up)
	}
	if last := up.SuccessfulExecutions[0]; !last.ScheduleTime.Time.Equal(at("06T09:00:00")) || *last.AppliedReplicas != 9 {
		t.Errorf("the last success is %+v", last)
	}
	if before := up.SuccessfulExecutions[1]; !before.ScheduleTime.Time.Equal(at("03T09:00:00")) || !before.ExecutionTime.Time.Equal(at("03T09:00:20")) {
		t.Errorf("the success before is %+v", before)
	}
	if failed := up.FailedExecutions[0]; !failed.ScheduleTime.Time.Equal(at("05T09:00:00")) || !strings.Contains(failed.Message, "still down") {
		t.Errorf("the last failure is %+v", failed)
	}
	for i := 1; i < 3; i++ {
		if other := w.history(i); other.NextExecutionTime != nil || len(other.SuccessfulExecutions)+len(other.FailedExecutions) > 0 {
			t.Errorf("the history of a rule that does not run is %+v", other)
		}
	}
}

// TestStandsBack checks that an object that moves to another cell is not run here.
func TestStandsBack(t *testing.T) {
	w := newClockwork(t, autoscalingv1alpha1.CronFederatedHPARule{Name: "up", Schedule: "0 9 * * *", TimeZone: ptr.To("UTC")})
	if _, _, err := w.reconcile("02T08:00:00"); err != nil {
		t.Fatal(err)
	}
	w.get(key).Labels = map[string]string{"cellplane.io/rebalance-status": "migrating"}
	if ran, after, _ := w.reconcile("02T09:00:00"); ran != "[]" || after != 0 {
		t.Errorf("%s ran, the next after %s", ran, after)
	}
}
