package autoscale

import (
	"cmp"
	"slices"
	"time"
)

// Sums is what the pods of a workload come to for one metric, in one cluster or in several. Usage and requests are in
// thousandths. Pods that are deleted or have failed are in none of the groups.
type Sums struct {
	// Measured are the pods that count with their sample.
	Measured int32
	// Usage is the sum of their samples.
	Usage int64
	// Requests is the sum of their requests.
	Requests int64

	// Unready are pods whose sample, if any, does not count because they do not serve yet.
	Unready int32
	// UnreadyRequests is the sum of their requests.
	UnreadyRequests int64

	// Missing are pods that run but have no sample, in groups with the same request, ordered by request.
	Missing []Missing

	// WithoutRequest are pods in any state that do not request the resource. If there are any, there is no utilization.
	WithoutRequest int32

	// Time is that of the oldest sample.
	Time time.Time
	// Window is the longest time that a sample covers.
	Window time.Duration
}

// Missing is a number of pods without a sample that have the same request. The request is needed per pod because what
// a pod is assumed to use is rounded per pod.
type Missing struct {
	Request int64
	Pods    int32
}

// Unknown returns the sums for pods of a cluster that does not report. The request is that of the workload's template.
func Unknown(pods int32, request int64) Sums {
	var s Sums
	if pods > 0 {
		s.Missing = []Missing{{request, pods}}
	}
	return s
}

// Add returns the sums over the pods of both.
func (s Sums) Add(other Sums) Sums {
	return Sums{
		Measured:        addPods(s.Measured, other.Measured),
		Usage:           add(s.Usage, other.Usage),
		Requests:        add(s.Requests, other.Requests),
		Unready:         addPods(s.Unready, other.Unready),
		UnreadyRequests: add(s.UnreadyRequests, other.UnreadyRequests),
		Missing:         addMissing(s.Missing, other.Missing),
		WithoutRequest:  addPods(s.WithoutRequest, other.WithoutRequest),
		Time:            oldest(s.Time, other.Time),
		Window:          max(s.Window, other.Window),
	}
}

// Empty reports whether no pod is in any of the groups.
func (s Sums) Empty() bool { return s.Measured == 0 && s.Unready == 0 && len(s.Missing) == 0 }

// missing returns the number of pods without a sample, and their requests.
func (s Sums) missing() (pods int32, requests int64) {
	for _, group := range s.Missing {
		pods = addPods(pods, group.Pods)
		requests = add(requests, share(group.Request, int64(group.Pods), 1))
	}
	return pods, requests
}

func addMissing(a, b []Missing) []Missing {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Missing) int { return cmp.Compare(x.Request, y.Request) })
	var merged []Missing
	for _, group := range all {
		if last := len(merged) - 1; last >= 0 && merged[last].Request == group.Request {
			merged[last].Pods = addPods(merged[last].Pods, group.Pods)
		} else {
			merged = append(merged, group)
		}
	}
	return merged
}

func oldest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// Pods counts the pods of a workload, in one cluster or in several.
type Pods struct {
	// Total is the number of all pods, in any state.
	Total int32
	// Ready is the number of pods that run and are ready.
	Ready int32
	// Unknown is the number of replicas in clusters that do not report. They are not in Total.
	Unknown int32
}

// Add returns the counts over both.
func (p Pods) Add(other Pods) Pods {
	return Pods{addPods(p.Total, other.Total), addPods(p.Ready, other.Ready), addPods(p.Unknown, other.Unknown)}
}

// Running is the number of all pods, with those in clusters that do not report.
func (p Pods) Running() int32 { return addPods(p.Total, p.Unknown) }
