package cronscaler

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the program may run where there are no time zones

	"github.com/robfig/cron/v3"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
)

// lateness is how late a run may be.
const lateness = time.Minute

// parse returns the schedule of a rule, in its time zone.
func parse(rule *autoscalingv1alpha1.CronFederatedHPARule) (cron.Schedule, error) {
	text := rule.Schedule
	if rule.TimeZone != nil {
		if strings.Contains(text, "TZ=") {
			return nil, errors.New("the schedule and timeZone both have a time zone")
		}
		if _, err := time.LoadLocation(*rule.TimeZone); err != nil {
			return nil, fmt.Errorf("there is no time zone %q", *rule.TimeZone)
		}
		text = "CRON_TZ=" + *rule.TimeZone + " " + text
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("the schedule %q is not in the format of cron: %w", rule.Schedule, err)
	}
	return schedule, nil
}

// plan returns the time of the run that is due, zero if none is, and when to run next. Recorded is when a run was expected, zero if that is not known. Of several runs that
// were missed the last one counts. A schedule that never comes has no next time.
func plan(schedule cron.Schedule, recorded, now time.Time) (due, next time.Time) {
	now = now.Local() // a schedule without a time zone has that of its argument
	next = schedule.Next(now)
	if recorded.IsZero() || !belongs(schedule, recorded.Local()) {
		return due, next
	}
	at, earliest := recorded.Local(), now.Add(-lateness)
	if at.Before(earliest) {
		at = schedule.Next(earliest)
	}
	for ; !at.IsZero() && !at.After(now); at = schedule.Next(at) {
		due = at
	}
	if due.IsZero() && at.After(now) && (next.IsZero() || at.Before(next)) {
		return due, at // a schedule with a delay counts from the last run
	}
	return due, next // also if the schedule was changed to one that comes sooner
}

// belongs reports whether a time is one of the schedule's. It is not if the schedule was changed. With a delay it cannot be told.
func belongs(schedule cron.Schedule, at time.Time) bool {
	if _, delay := schedule.(cron.ConstantDelaySchedule); delay {
		return true
	}
	return schedule.Next(at.Add(-time.Second)).Equal(at)
}
