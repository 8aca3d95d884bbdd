package autoscale

import (
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Settings are those that hold for all autoscalers.
type Settings struct {
	// Tolerance is how far usage may be from a target without a change, as a part of the target.
	Tolerance float64
	// Stabilization is the time in which the highest recommendation counts for a scale-down.
	Stabilization time.Duration
}

// DefaultSettings has the defaults of kube-controller-manager.
var DefaultSettings = Settings{Tolerance: 0.1, Stabilization: 5 * time.Minute}

// Workload is the state of the workload that is scaled.
type Workload struct {
	// Replicas is how many there should be now.
	Replicas int32
	// Running is how many its status reports.
	Running int32
	// Pods counts its pods in all clusters.
	Pods Pods
	// Copies is in how many clusters it runs with all its replicas; 0 and 1 mean that the clusters share them. Running and
	// Pods are those of all copies.
	Copies int32
}

// copies returns the number of copies, at least one.
func (w Workload) copies() int32 { return max(w.Copies, 1) }

// all returns the replicas of all copies.
func (w Workload) all() int32 { return int32Of(int64(w.Replicas) * int64(w.copies())) }

// Reading is the current state of one metric of an autoscaler.
type Reading struct {
	// Sums are those of all clusters, for a metric of pods.
	Sums Sums
	// Value is in thousandths, for a metric of an object, or an external one: the sum of all its series.
	Value int64
	// Incomplete is set if clusters that should be part of it are not. Then the metric does not lower the replicas.
	Incomplete bool
	// Err says why there is no state.
	Err error
}

// Total returns the sum of the series of an external metric, or of the values of several clusters.
func Total(values []int64) int64 {
	var sum int64
	for _, value := range values {
		sum = add(sum, value)
	}
	return sum
}

// Decision is what an autoscaler decided.
type Decision struct {
	// Replicas is how many there should be.
	Replicas int32
	// Reason says why they change, if they do.
	Reason string
	// Metrics are the metrics that could be read.
	Metrics []autoscalingv2.MetricStatus
	// Conditions are those to set, without times.
	Conditions []autoscalingv2.HorizontalPodAutoscalerCondition
	// Err says what is wrong with the metrics. Replicas hold nevertheless: they may change because of other metrics.
	Err error
}

// Decide returns the replicas that a workload should have. There is one reading for each metric of the autoscaler. If
// the replicas change, the caller records that with History.Scaled.
func Decide(spec *autoscalingv2.HorizontalPodAutoscalerSpec, workload Workload, readings []Reading, history *History, settings Settings, now time.Time) Decision {
	current, lowest := workload.Replicas, int32(1)
	if spec.MinReplicas != nil {
		lowest = *spec.MinReplicas
	}
	history.start(current, now)
	switch {
	case current == 0:
		return Decision{Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
			condition(autoscalingv2.ScalingActive, false, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero"),
		}}
	case current > spec.MaxReplicas:
		return Decision{Replicas: spec.MaxReplicas, Reason: "Current number of replicas above Spec.MaxReplicas"}
	case current < lowest:
		return Decision{Replicas: lowest, Reason: "Current number of replicas below Spec.MinReplicas"}
	}

	d, proposal := evaluate(spec, workload, readings, settings)
	if proposal == nil {
		d.Replicas = current
		return d
	}
	desired := max(0, proposal.replicas)
	if workload.Pods.Unknown > 0 {
		desired = max(desired, current) // pods that nobody sees may be busier than any assumption about them
	}
	var conditions []autoscalingv2.HorizontalPodAutoscalerCondition
	if spec.Behavior == nil {
		d.Replicas, conditions = limit(desired, current, lowest, spec.MaxReplicas, history, settings, now)
	} else {
		d.Replicas, conditions = limitByBehavior(desired, current, lowest, spec, history, settings, now)
	}
	d.Conditions = append(d.Conditions, conditions...)
	switch {
	case d.Replicas == current:
	case desired > current:
		d.Reason = proposal.metric + " above target"
	case d.Replicas > current:
		d.Reason = "Recent recommendations above current number of replicas"
	default:
		d.Reason = "All metrics below target"
	}
	return d
}

// proposal is the number of replicas that a metric asks for.
type proposal struct {
	replicas int32
	metric   string
	status   autoscalingv2.MetricStatus
}

// evaluate returns the largest proposal. If metrics failed, there is none that lowers the replicas.
func evaluate(spec *autoscalingv2.HorizontalPodAutoscalerSpec, workload Workload, readings []Reading, settings Settings) (Decision, *proposal) {
	var d Decision
	var largest *proposal
	var failure error
	var failed autoscalingv2.HorizontalPodAutoscalerCondition
	failures := 0
	for i, metric := range spec.Metrics {
		p, err := propose(metric, workload, readings[i], tolerates(spec.Behavior, settings.Tolerance))
		if err != nil {
			if failures++; failures == 1 {
				failure, failed = err, condition(autoscalingv2.ScalingActive, false, failureReason(metric.Type), "the HPA was unable to compute the replica count: "+err.Error())
			}
			continue
		}
		d.Metrics = append(d.Metrics, p.status)
		if largest == nil || p.replicas > largest.replicas {
			largest = p
		}
	}
	if failures > 0 {
		d.Err = fmt.Errorf("%d of %d metrics failed, the first: %w", failures, len(spec.Metrics), failure)
	}
	switch {
	case len(spec.Metrics) == 0:
		d.Err = errors.New("the autoscaler has no metrics")
	case largest == nil, failures > 0 && largest.replicas < workload.Replicas:
		d.Conditions = append(d.Conditions, failed)
		return d, nil
	default:
		d.Conditions = append(d.Conditions, condition(autoscalingv2.ScalingActive, true, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+largest.metric))
	}
	return d, largest
}

func failureReason(kind autoscalingv2.MetricSourceType) string {
	switch kind {
	case autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
		autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType:
		return "FailedGet" + string(kind) + "Metric"
	}
	return "InvalidMetricSourceType"
}

// propose returns the replicas that one metric asks for.
func propose(spec autoscalingv2.MetricSpec, w Workload, r Reading, t tolerance) (*proposal, error) {
	if _, _, err := MetricOf(spec); err != nil {
		return nil, err
	}
	if r.Err != nil {
		return nil, r.Err
	}
	p := &proposal{status: autoscalingv2.MetricStatus{Type: spec.Type}}
	var err error
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		source := spec.Resource
		status := &autoscalingv2.ResourceMetricStatus{Name: source.Name}
		p.status.Resource, p.metric = status, string(source.Name)+" resource"
		err = p.byResource(source.Name, source.Target, &status.Current, w, r, t)
	case autoscalingv2.ContainerResourceMetricSourceType:
		source := spec.ContainerResource
		status := &autoscalingv2.ContainerResourceMetricStatus{Name: source.Name, Container: source.Container}
		p.status.ContainerResource, p.metric = status, string(source.Name)+" container resource"
		err = p.byResource(source.Name, source.Target, &status.Current, w, r, t)
	case autoscalingv2.PodsMetricSourceType:
		source := spec.Pods
		status := &autoscalingv2.PodsMetricStatus{Metric: source.Metric}
		p.status.Pods, p.metric = status, "pods metric "+source.Metric.Name
		if source.Target.AverageValue == nil {
			return nil, errors.New("a metric of pods needs a target averageValue")
		}
		var average int64
		p.replicas, average, err = averageReplicas(r.Sums, source.Target.AverageValue.MilliValue(), w.all(), t)
		status.Current.AverageValue = milli(average)
	case autoscalingv2.ObjectMetricSourceType:
		source := spec.Object
		status := &autoscalingv2.ObjectMetricStatus{Metric: source.Metric, DescribedObject: source.DescribedObject}
		p.status.Object, p.metric = status, source.DescribedObject.Kind+" metric "+source.Metric.Name
		target := source.Target
		if target.Type == autoscalingv2.ValueMetricType {
			target.AverageValue = nil
		} else {
			target.Value = nil
		}
		err = p.byValue(target, &status.Current, w, r, t)
	default:
		source := spec.External
		status := &autoscalingv2.ExternalMetricStatus{Metric: source.Metric}
		p.status.External, p.metric = status, "external metric "+source.Metric.Name
		err = p.byValue(source.Target, &status.Current, w, r, t)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.metric, err)
	}
	p.replicas = int32Of(roundUp(int64(p.replicas), int64(w.copies())))
	if r.Incomplete {
		p.replicas = max(p.replicas, w.Replicas)
	}
	return p, nil
}

func (p *proposal) byResource(name corev1.ResourceName, target autoscalingv2.MetricTarget, status *autoscalingv2.MetricValueStatus, w Workload, r Reading, t tolerance) (err error) {
	var average int64
	switch {
	case target.AverageValue != nil:
		p.replicas, average, err = averageReplicas(r.Sums, target.AverageValue.MilliValue(), w.all(), t)
	case target.AverageUtilization != nil:
		var utilization int32
		p.replicas, utilization, average, err = utilizationReplicas(r.Sums, *target.AverageUtilization, w.all(), t)
		p.metric += " utilization (percentage of request)"
		status.AverageUtilization = &utilization
	default:
		return errors.New("a resource metric needs a target averageUtilization or averageValue")
	}
	status.AverageValue = milli(average)
	if name == corev1.ResourceMemory {
		status.AverageValue.Format = resource.BinarySI
	}
	return err
}

func (p *proposal) byValue(target autoscalingv2.MetricTarget, status *autoscalingv2.MetricValueStatus, w Workload, r Reading, t tolerance) (err error) {
	switch {
	case target.AverageValue != nil:
		var average int64
		p.replicas, average, err = perPodReplicas(r.Value, target.AverageValue.MilliValue(), w.Running, t)
		status.AverageValue = milli(average)
	case target.Value != nil:
		p.replicas, err = valueReplicas(r.Value, target.Value.MilliValue(), w.Pods, w.all(), t)
		status.Value = milli(r.Value)
	default:
		return errors.New("the metric needs a target value or averageValue")
	}
	return err
}

func milli(value int64) *resource.Quantity {
	return resource.NewMilliQuantity(value, resource.DecimalSI)
}

// Messages of conditions are those of Kubernetes: people and tools know them.
const (
	withinRange  = "the desired count is within the acceptable range"
	belowMinimum = "the desired replica count is less than the minimum replica count"
	aboveMaximum = "the desired replica count is more than the maximum replica count"
	upTooFast    = "the desired replica count is increasing faster than the maximum scale rate"
	downTooFast  = "the desired replica count is decreasing faster than the maximum scale rate"
)

// limit bounds the replicas of an autoscaler without a behavior.
func limit(desired, current, lowest, highest int32, h *History, settings Settings, now time.Time) (int32, []autoscalingv2.HorizontalPodAutoscalerCondition) {
	stable := h.stabilizeDown(desired, settings.Stabilization, now)
	step := max(count(usualFactor*float64(current)), usualFloor)
	limited := condition(autoscalingv2.ScalingLimited, false, "DesiredWithinRange", withinRange)
	replicas := stable
	switch {
	case stable < lowest:
		replicas, limited = lowest, condition(autoscalingv2.ScalingLimited, true, "TooFewReplicas", belowMinimum)
	case stable > step && step < highest:
		replicas, limited = step, condition(autoscalingv2.ScalingLimited, true, "ScaleUpLimit", upTooFast)
	case stable > highest:
		replicas, limited = highest, condition(autoscalingv2.ScalingLimited, true, "TooManyReplicas", aboveMaximum)
	}
	return replicas, []autoscalingv2.HorizontalPodAutoscalerCondition{stability(desired, stable), limited}
}

// limitByBehavior bounds the replicas of an autoscaler by its behavior.
func limitByBehavior(desired, current, lowest int32, spec *autoscalingv2.HorizontalPodAutoscalerSpec, h *History, settings Settings, now time.Time) (int32, []autoscalingv2.HorizontalPodAutoscalerCondition) {
	up, down := scaleUpRules(spec.Behavior), scaleDownRules(spec.Behavior, settings.Stabilization)
	stable := h.stabilize(desired, current, up.window, down.window, now)
	limited := condition(autoscalingv2.ScalingLimited, false, "DesiredWithinRange", withinRange)
	replicas := stable
	switch {
	case stable > current:
		if most := up.most(current, h, now); most < spec.MaxReplicas {
			if stable > most {
				replicas, limited = most, condition(autoscalingv2.ScalingLimited, true, "ScaleUpLimit", upTooFast)
			}
		} else if stable > spec.MaxReplicas {
			replicas, limited = spec.MaxReplicas, condition(autoscalingv2.ScalingLimited, true, "TooManyReplicas", aboveMaximum)
		}
	case stable < current:
		if fewest := down.fewest(current, h, now); fewest > lowest {
			if stable < fewest {
				replicas, limited = fewest, condition(autoscalingv2.ScalingLimited, true, "ScaleDownLimit", downTooFast)
			}
		} else if stable < lowest {
			replicas, limited = lowest, condition(autoscalingv2.ScalingLimited, true, "TooFewReplicas", belowMinimum)
		}
	}
	return replicas, []autoscalingv2.HorizontalPodAutoscalerCondition{stability(desired, stable), limited}
}

// stability says whether earlier recommendations bounded the replicas.
func stability(desired, stable int32) autoscalingv2.HorizontalPodAutoscalerCondition {
	switch {
	case stable == desired:
		return condition(autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size")
	case desired < stable:
		return condition(autoscalingv2.AbleToScale, true, "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation")
	}
	return condition(autoscalingv2.AbleToScale, true, "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation")
}

func condition(kind autoscalingv2.HorizontalPodAutoscalerConditionType, is bool, reason, message string) autoscalingv2.HorizontalPodAutoscalerCondition {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	return autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind, Status: status, Reason: reason, Message: message}
}
