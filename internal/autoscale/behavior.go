package autoscale

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// Without a behavior, replicas are at most doubled at a time, or raised to four.
const (
	usualFactor = 2
	usualFloor  = 4
)

// scalingRules are the rules of a behavior for one direction, with defaults.
type scalingRules struct {
	window   time.Duration
	choice   autoscalingv2.ScalingPolicySelect
	policies []autoscalingv2.HPAScalingPolicy
}

func scaleUpRules(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior) scalingRules {
	return scalingRules{
		choice: autoscalingv2.MaxChangePolicySelect,
		policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		},
	}.with(behavior.ScaleUp)
}

func scaleDownRules(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, usual time.Duration) scalingRules {
	return scalingRules{
		window:   usual,
		choice:   autoscalingv2.MaxChangePolicySelect,
		policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}},
	}.with(behavior.ScaleDown)
}

func (r scalingRules) with(rules *autoscalingv2.HPAScalingRules) scalingRules {
	if rules == nil {
		return r
	}
	if rules.StabilizationWindowSeconds != nil {
		r.window = seconds(*rules.StabilizationWindowSeconds)
	}
	if rules.SelectPolicy != nil {
		r.choice = *rules.SelectPolicy
	}
	if len(rules.Policies) > 0 {
		r.policies = rules.Policies
	}
	return r
}

// period returns the longest period of the policies.
func (r scalingRules) period() time.Duration {
	var longest time.Duration
	for _, policy := range r.policies {
		longest = max(longest, seconds(policy.PeriodSeconds))
	}
	return longest
}

// most returns the replicas to which the policies allow to scale up.
func (r scalingRules) most(current int32, h *History, now time.Time) int32 {
	if r.choice == autoscalingv2.DisabledPolicySelect {
		return current
	}
	var limits []int32
	for _, policy := range r.policies {
		start := float64(h.before(current, policy, now))
		if policy.Type == autoscalingv2.PercentScalingPolicy {
			limits = append(limits, count(start*(1+float64(policy.Value)/100))) // rounded up: it must be possible to start with one
		} else {
			limits = append(limits, count(start+float64(policy.Value)))
		}
	}
	lowest, highest := bounds(limits)
	if r.choice == autoscalingv2.MinChangePolicySelect {
		return max(current, lowest)
	}
	return max(current, highest)
}

// fewest returns the replicas to which the policies allow to scale down.
func (r scalingRules) fewest(current int32, h *History, now time.Time) int32 {
	if r.choice == autoscalingv2.DisabledPolicySelect {
		return current
	}
	var limits []int32
	for _, policy := range r.policies {
		start := float64(h.before(current, policy, now))
		if policy.Type == autoscalingv2.PercentScalingPolicy {
			limits = append(limits, count(math.Trunc(start*(1-float64(policy.Value)/100))))
		} else {
			limits = append(limits, count(start-float64(policy.Value)))
		}
	}
	lowest, highest := bounds(limits)
	if r.choice == autoscalingv2.MinChangePolicySelect {
		return min(current, highest)
	}
	return min(current, lowest)
}

func bounds(limits []int32) (lowest, highest int32) {
	lowest, highest = math.MaxInt32, math.MinInt32
	for _, limit := range limits {
		lowest, highest = min(lowest, limit), max(highest, limit)
	}
	return lowest, highest
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// History is what an autoscaler remembers between decisions. The zero value is that of a new autoscaler. After a restart
// the current replicas count as the first recommendation, so that a scale-down waits for its window again.
type History struct {
	recommended []event
	up, down    []event
}

// event is a number of replicas that was recommended, added or removed.
type event struct {
	replicas int32
	at       time.Time
}

// start makes the current replicas the first recommendation.
func (h *History) start(current int32, now time.Time) {
	if h.recommended == nil {
		h.recommended = []event{{current, now}}
	}
}

// Scaled records that the replicas were changed. It is called when the change is written.
func (h *History) Scaled(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, from, to int32, now time.Time) {
	switch {
	case behavior == nil:
	case to > from:
		h.up = record(h.up, event{to - from, now}, now.Add(-scaleUpRules(behavior).period()))
	case to < from:
		h.down = record(h.down, event{from - to, now}, now.Add(-scaleDownRules(behavior, 0).period()))
	}
}

// before returns the replicas at the start of the period of a policy.
func (h *History) before(current int32, policy autoscalingv2.HPAScalingPolicy, now time.Time) int32 {
	start := now.Add(-seconds(policy.PeriodSeconds))
	for _, e := range h.up {
		if e.at.After(start) {
			current -= e.replicas
		}
	}
	for _, e := range h.down {
		if e.at.After(start) {
			current += e.replicas
		}
	}
	return current
}

// stabilize records a recommendation, and returns it bounded by those of the windows.
func (h *History) stabilize(desired, current int32, up, down time.Duration, now time.Time) int32 {
	upStart, downStart := now.Add(-up), now.Add(-down)
	lowest, highest := desired, desired
	for _, e := range h.recommended {
		if e.at.After(upStart) {
			lowest = min(lowest, e.replicas)
		}
		if e.at.After(downStart) {
			highest = max(highest, e.replicas)
		}
	}
	oldest := upStart
	if downStart.Before(oldest) {
		oldest = downStart
	}
	h.recommended = record(h.recommended, event{desired, now}, oldest)
	return min(max(current, lowest), highest)
}

// stabilizeDown records a recommendation, and returns the highest of the window.
func (h *History) stabilizeDown(desired int32, window time.Duration, now time.Time) int32 {
	start := now.Add(-window)
	highest := desired
	for _, e := range h.recommended {
		if !e.at.Before(start) {
			highest = max(highest, e.replicas)
		}
	}
	h.recommended = record(h.recommended, event{desired, now}, start)
	return highest
}

// record replaces an event from before start, if there is one, so that no more are kept than a window or period has.
func record(events []event, e event, start time.Time) []event {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].at.Before(start) {
			events[i] = e
			return events
		}
	}
	return append(events, e)
}
