package stages

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Stage is one step of a rollout.
type Stage struct {
	Name string
	// Clusters are the names of its clusters. A cluster belongs to the first stage that has it, and to the last stage of all if none has
	// it.
	Clusters []string
	// AtOnce is how many clusters may be in the middle of their update; nil means all. A percentage is of the clusters of the stage,
	// rounded up. At least one may.
	AtOnce *intstr.IntOrString
	// Soak is how long all clusters of the stage must have been done before the next stage begins.
	Soak time.Duration
	// Approval is whether the stage begins only when it is approved.
	Approval bool
}

// Policy is what a user has defined.
type Policy struct {
	Stages []Stage
	// Stalled is how long a cluster may be without progress, and Unavailable how long pods of a cluster that has begun may be
	// unavailable, before it counts as failed. Zero means for ever.
	Stalled, Unavailable time.Duration
	// Failures is how many clusters may fail before the rollout does.
	Failures int
	// RollBack is whether a rollout that failed is rolled back. Otherwise it is paused.
	RollBack bool
}

// Cluster is the state of a cluster in this rollout.
type Cluster struct {
	Name string
	// Began and Done are when it began and was done; zero if it has not, or is not any more.
	Began, Done time.Time
	// Progressed is when its numbers last changed.
	Progressed time.Time
	// Unavailable is since when any of its pods is unavailable; zero if none is.
	Unavailable time.Time
}

// Verdict is what becomes of the rollout.
type Verdict int

// The verdicts.
const (
	Continue Verdict = iota
	Pause
	RollBack
)

// Result is a decision.
type Result struct {
	// Hold is, by cluster, why it may not begin. Clusters that may begin, or have begun, are not in it.
	Hold map[string]string
	// Stage is the number of the stage that is in progress, from 0; that of the stages if all are done.
	Stage int
	// Awaits is the name of the stage that waits for approval; empty if none does.
	Awaits  string
	Verdict Verdict
	// Reason explains the verdict, and is empty for Continue.
	Reason string
	// Next is when time alone changes the decision; zero if it does not.
	Next time.Time
}

// Decide returns which clusters may begin. Approved reports whether a stage is approved for this rollout.
func Decide(policy Policy, clusters []Cluster, approved func(stage string) bool, now time.Time) Result {
	d := &decision{policy: policy, now: now, result: Result{Hold: map[string]string{}}}
	groups := d.groups(clusters)
	d.judge(clusters)
	open := true
	for i, group := range groups {
		stage := d.stage(i)
		switch {
		case !open:
			d.holdAll(group, "waits for stage "+d.stage(d.result.Stage).Name)
			continue
		case d.result.Verdict != Continue:
			d.holdAll(group, d.result.Reason)
		case stage.Approval && !approved(stage.Name) && len(group) > 0:
			d.result.Awaits = stage.Name
			d.holdAll(group, fmt.Sprintf("waits until stage %s is approved", stage.Name))
		default:
			d.limit(stage, group)
		}
		if open = d.passed(stage, group); open {
			d.result.Stage = i + 1
		}
	}
	d.result.Stage = min(d.result.Stage, len(policy.Stages))
	return d.result
}

type decision struct {
	policy Policy
	now    time.Time
	result Result
}

// stage returns a stage. After the last one, there is one for clusters that belong to none.
func (d *decision) stage(i int) Stage {
	if i < len(d.policy.Stages) {
		return d.policy.Stages[i]
	}
	return Stage{Name: "of all others"}
}

// groups returns the clusters of each stage, in their order.
func (d *decision) groups(clusters []Cluster) [][]Cluster {
	groups := make([][]Cluster, len(d.policy.Stages)+1)
	of := map[string]int{}
	for i := len(d.policy.Stages) - 1; i >= 0; i-- {
		for _, name := range d.policy.Stages[i].Clusters {
			of[name] = i
		}
	}
	for _, c := range clusters {
		i, known := of[c.Name]
		if !known {
			i = len(d.policy.Stages)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// judge decides whether the rollout has failed.
func (d *decision) judge(clusters []Cluster) {
	failed, first := 0, ""
	for i := range clusters {
		if why := d.failure(&clusters[i]); why != "" {
			if failed++; first == "" {
				first = why
			}
		}
	}
	if failed <= d.policy.Failures {
		return
	}
	d.result.Verdict, d.result.Reason = Pause, fmt.Sprintf("the rollout failed in %d clusters: %s", failed, first)
	if d.policy.RollBack {
		d.result.Verdict = RollBack
	}
}

// failure returns why a cluster has failed; empty if it has not.
func (d *decision) failure(c *Cluster) string {
	if c.Began.IsZero() {
		return ""
	}
	if since := latest(c.Began, c.Progressed); c.Done.IsZero() && d.past(since, d.policy.Stalled) {
		return fmt.Sprintf("%s has made no progress for %s", c.Name, d.policy.Stalled)
	}
	if !c.Unavailable.IsZero() && d.past(latest(c.Began, c.Unavailable), d.policy.Unavailable) {
		return fmt.Sprintf("%s has had unavailable pods for %s", c.Name, d.policy.Unavailable)
	}
	return ""
}

// past reports whether a time is longer ago than a limit, and otherwise notes when it will be. Without a limit it never is.
func (d *decision) past(since time.Time, limit time.Duration) bool {
	if limit == 0 {
		return false
	}
	end := since.Add(limit)
	if d.now.Before(end) {
		d.lookAgain(end)
		return false
	}
	return true
}

func (d *decision) lookAgain(at time.Time) {
	if d.result.Next.IsZero() || at.Before(d.result.Next) {
		d.result.Next = at
	}
}

// limit holds clusters back that would be too many at once.
func (d *decision) limit(stage Stage, group []Cluster) {
	free := atOnce(stage.AtOnce, len(group))
	for _, c := range group {
		if !c.Began.IsZero() && c.Done.IsZero() {
			free--
		}
	}
	for _, c := range group {
		switch {
		case !c.Began.IsZero() || !c.Done.IsZero():
		case free <= 0:
			d.result.Hold[c.Name] = fmt.Sprintf("waits for other clusters of stage %s", stage.Name)
		default:
			free--
		}
	}
}

func (d *decision) holdAll(group []Cluster, reason string) {
	for _, c := range group {
		if c.Began.IsZero() {
			d.result.Hold[c.Name] = reason
		}
	}
}

// passed reports whether all clusters of a stage have been done for long enough.
func (d *decision) passed(stage Stage, group []Cluster) bool {
	var last time.Time
	for _, c := range group {
		if c.Done.IsZero() {
			return false
		}
		last = latest(last, c.Done)
	}
	return len(group) == 0 || stage.Soak == 0 || d.past(last, stage.Soak)
}

// atOnce resolves how many of the clusters of a stage may be in the middle of their update. A value that cannot be read means one.
func atOnce(value *intstr.IntOrString, clusters int) int {
	if value == nil {
		return clusters
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, clusters, true)
	if err != nil {
		return 1
	}
	return max(1, n)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
