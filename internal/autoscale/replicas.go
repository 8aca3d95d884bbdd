package autoscale

import (
	"errors"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// tolerance is how far a ratio of usage to target may be from one without a change.
type tolerance struct{ down, up float64 }

// tolerates returns the tolerance of an autoscaler.
func tolerates(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior, usual float64) tolerance {
	t := tolerance{usual, usual}
	if behavior == nil {
		return t
	}
	if rules := behavior.ScaleDown; rules != nil && rules.Tolerance != nil {
		t.down = rules.Tolerance.AsApproximateFloat64()
	}
	if rules := behavior.ScaleUp; rules != nil && rules.Tolerance != nil {
		t.up = rules.Tolerance.AsApproximateFloat64()
	}
	return t
}

func (t tolerance) includes(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

var (
	errNoSamples = errors.New("no metrics of ready pods")
	errNoPods    = errors.New("the workload has no pods")
	errTarget    = errors.New("the target must be positive")
)

// counted are pods with what they use, or are assumed to use.
type counted struct {
	pods            int32
	usage, requests int64
}

func (c counted) with(pods int32, usage, requests int64) counted {
	return counted{addPods(c.pods, pods), add(c.usage, usage), add(c.requests, requests)}
}

// target is what pods should use on average.
type target interface {
	// ratio returns the ratio of usage to target.
	ratio(c counted) float64
	// assumed returns what pods without a sample are assumed to use if the others use less than the target.
	assumed(missing []Missing) int64
}

// averageUtilization is a target in percent of the requests.
type averageUtilization int32

func (t averageUtilization) of(c counted) int32 {
	return int32Of(share(c.usage, 100, c.requests))
}

func (t averageUtilization) ratio(c counted) float64 { return float64(t.of(c)) / float64(t) }

// assumed takes all that is requested, or the target if that is more.
func (t averageUtilization) assumed(missing []Missing) int64 {
	var sum int64
	for _, group := range missing {
		sum = add(sum, share(share(group.Request, int64(max(100, t)), 100), int64(group.Pods), 1))
	}
	return sum
}

// averageValue is a target in thousandths.
type averageValue int64

func (averageValue) of(c counted) int64 { return c.usage / int64(c.pods) }

func (t averageValue) ratio(c counted) float64 { return float64(t.of(c)) / float64(t) }

// assumed takes the target.
func (t averageValue) assumed(missing []Missing) int64 {
	var sum int64
	for _, group := range missing {
		sum = add(sum, share(int64(t), int64(group.Pods), 1))
	}
	return sum
}

// utilizationReplicas returns the replicas with which pods use the target, and the utilization and usage of a pod now.
func utilizationReplicas(s Sums, target, current int32, t tolerance) (replicas, utilization int32, average int64, err error) {
	switch {
	case target <= 0:
		return 0, 0, 0, errTarget
	case s.Measured == 0:
		return 0, 0, 0, errNoSamples
	case s.WithoutRequest > 0:
		return 0, 0, 0, errors.New("there are pods that do not request the resource")
	case s.Requests == 0:
		return 0, 0, 0, errors.New("all pods with metrics request none of the resource")
	}
	measured := counted{s.Measured, s.Usage, s.Requests}
	return podReplicas(s, averageUtilization(target), current, t), averageUtilization(target).of(measured), averageValue(0).of(measured), nil
}

// averageReplicas returns the replicas with which pods use the target, and the usage of a pod now.
func averageReplicas(s Sums, target int64, current int32, t tolerance) (replicas int32, average int64, err error) {
	switch {
	case target <= 0:
		return 0, 0, errTarget
	case s.Measured == 0:
		return 0, 0, errNoSamples
	}
	return podReplicas(s, averageValue(target), current, t), averageValue(target).of(counted{s.Measured, s.Usage, s.Requests}), nil
}

// podReplicas returns the replicas with which the pods use the target on average. Pods without a sample, and those that
// are not ready, are assumed to use what makes the change smaller. They never turn its direction.
func podReplicas(s Sums, target target, current int32, t tolerance) int32 {
	measured := counted{s.Measured, s.Usage, s.Requests}
	first := target.ratio(measured)
	missing, missingRequests := s.missing()
	withUnready := s.Unready > 0 && first > 1
	if missing == 0 && !withUnready {
		if t.includes(first) {
			return current
		}
		return count(first * float64(measured.pods))
	}

	all := measured
	switch {
	case first < 1:
		all = all.with(missing, target.assumed(s.Missing), missingRequests)
	case first > 1:
		all = all.with(missing, 0, missingRequests)
	}
	if withUnready {
		all = all.with(s.Unready, 0, s.UnreadyRequests)
	}
	ratio := target.ratio(all)
	if t.includes(ratio) || (first < 1 && ratio > 1) || (first > 1 && ratio < 1) {
		return current
	}
	replicas := count(ratio * float64(all.pods))
	if (ratio < 1 && replicas > current) || (ratio > 1 && replicas < current) {
		return current
	}
	return replicas
}

// valueReplicas returns the replicas with which a value that all pods share becomes the target. The result depends on how
// many pods are ready. Of those that are possible because some are unknown, it is the one closest to the current replicas.
func valueReplicas(value, target int64, pods Pods, current int32, t tolerance) (int32, error) {
	if target <= 0 {
		return 0, errTarget
	}
	ratio := float64(value) / float64(target)
	if t.includes(ratio) {
		return current, nil
	}
	if pods.Running() == 0 {
		return 0, errNoPods
	}
	known, all := count(ratio*float64(pods.Ready)), count(ratio*float64(addPods(pods.Ready, pods.Unknown)))
	return min(max(current, min(known, all)), max(known, all)), nil
}

// perPodReplicas returns the replicas with which each has the target of a value, and what each has of it now.
func perPodReplicas(value, target int64, current int32, t tolerance) (replicas int32, average int64, err error) {
	if target <= 0 {
		return 0, 0, errTarget
	}
	if current <= 0 {
		return count(float64(value) / float64(target)), value, nil
	}
	replicas, average = current, roundUp(value, int64(current))
	if !t.includes(float64(value) / (float64(target) * float64(current))) {
		replicas = count(float64(value) / float64(target))
	}
	return replicas, average, nil
}

// roundUp returns a/b, rounded up. b must be positive.
func roundUp(a, b int64) int64 {
	if a > 0 && a%b != 0 {
		return a/b + 1
	}
	return a / b
}
