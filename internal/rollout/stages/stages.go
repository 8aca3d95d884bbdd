package stages

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy is how a workload is updated.
type Policy struct {
	// Stages are the stages, in order.
	Stages []Stage
	// Tolerated is how many clusters may fail before the update does.
	Tolerated int
}

// Stage is a group of clusters that are updated before those of the next stage.
type Stage struct {
	Name string
	// AtOnce is how many of its clusters are updated at the same time; 0 means all.
	AtOnce int
	// Soak is how long the next stage waits.
	Soak time.Duration
	// Approval is whether the stage has to be approved.
	Approval bool
}

// Cluster is a cluster that the workload is placed in.
type Cluster struct {
	// Stage is the number of its stage.
	Stage int
	// Begun is whether the cluster was told to update, Done whether it has finished, and Failed whether it cannot.
	Begun, Done, Failed bool
	Name                string
}

// Input is everything that a decision depends on.
type Input struct {
	Policy
	// Update names what the clusters are updated to.
	Update   string
	Clusters []Cluster
	Record   Record
	Approval Approval
	Now      time.Time
}

// Result is a decision.
type Result struct {
	// Holds says of each cluster, in the order of the clusters, why it may not begin; empty if it may.
	Holds []string
	// Failure is why the update has failed and nothing may go on; empty if it may.
	Failure string
	// Record is what is to be stored.
	Record Record
	// After is when to decide again without an event; zero means never.
	After time.Duration
}

// Decide decides which clusters may begin.
func Decide(in Input) Result {
	result := Result{Holds: make([]string, len(in.Clusters)), Record: in.Record.of(in.Update)}
	result.fail(&in)
	hold := "" // of all further stages
	for number := range in.Stages {
		if hold == "" {
			hold = result.decideStage(&in, number)
			continue
		}
		for i := range in.Clusters {
			if in.Clusters[i].Stage == number && !in.Clusters[i].Begun {
				result.Holds[i] = hold
			}
		}
	}
	return result
}

// fail records that the update has failed, unless somebody has approved that it goes on.
func (r *Result) fail(in *Input) {
	if in.Approval.failures(in.Update) {
		r.Record.Failed = nil
		return
	}
	var failed []string
	for i := range in.Clusters {
		if c := &in.Clusters[i]; c.Begun && c.Failed && !c.Done {
			failed = append(failed, c.Name)
		}
	}
	if len(failed) > in.Tolerated && len(r.Record.Failed) == 0 {
		slices.Sort(failed)
		r.Record.Failed = failed
	}
	if len(r.Record.Failed) > 0 {
		r.Failure = fmt.Sprintf("the update has failed in %s", strings.Join(r.Record.Failed, ", "))
	}
}

// decideStage decides about a stage that follows only finished ones. It returns why the next stages have to wait; empty if they need not.
func (r *Result) decideStage(in *Input, number int) (next string) {
	stage := &in.Stages[number]
	size, active, done := 0, 0, 0
	for i := range in.Clusters {
		switch c := &in.Clusters[i]; {
		case c.Stage != number:
			continue
		case c.Done:
			done++
		case c.Begun:
			active++
		}
		size++
	}
	waiting := size - active - done
	hold := ""
	if stage.Approval && !in.Approval.stage(in.Update, stage.Name) {
		hold = fmt.Sprintf("stage %s waits for approval", stage.Name)
	}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if c.Stage != number || c.Begun || c.Done {
			continue
		}
		switch {
		case hold != "":
			r.Holds[i] = hold
		case stage.AtOnce > 0 && active >= stage.AtOnce:
			r.Holds[i] = fmt.Sprintf("waits for other clusters of stage %s: maxClusters is %d", stage.Name, stage.AtOnce)
		default:
			active++
		}
	}
	switch {
	case size == 0:
		return ""
	case waiting > 0 && hold != "":
		r.Record.Waiting = stage.Name
		r.Record.reopen(stage.Name)
		return hold
	case done < size:
		r.Record.reopen(stage.Name)
		return fmt.Sprintf("waits for stage %s: %d of %d clusters are updated", stage.Name, done, size)
	}
	return r.soak(in, number)
}

// soak records when a stage was finished. It returns why the next stages have to wait; empty if they need not.
func (r *Result) soak(in *Input, number int) string {
	stage := &in.Stages[number]
	if stage.Soak == 0 || !slices.ContainsFunc(in.Clusters, func(c Cluster) bool { return c.Stage > number && !c.Begun }) {
		return ""
	}
	finished := r.Record.finish(stage.Name, in.Now)
	end := finished.Add(stage.Soak)
	if !in.Now.Before(end) {
		return ""
	}
	r.After = end.Sub(in.Now)
	return fmt.Sprintf("stage %s is observed until %s", stage.Name, end.UTC().Format(time.RFC3339))
}
