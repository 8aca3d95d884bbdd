// Package scenario has random histories of an autoscaled workload. They are for a comparison of the decisions of
// package autoscale with those of Kubernetes' own controller.
package scenario

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	resourcemetrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/cellplane/cellplane/internal/autoscale"
)

// Interval is the time between two decisions. The first is at Start plus Interval.
const Interval = 15 * time.Second

// Start is when the autoscaler is created. It is the time at which a bubble of testing/synctest starts.
var Start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Settings are those of the autoscaler. The window is short, so that a scenario can be.
var Settings = autoscale.Settings{Tolerance: 0.1, Stabilization: time.Minute}

// Scenario is an autoscaler and what it sees. It is encoded as JSON for the program that runs Kubernetes' controller.
type Scenario struct {
	Spec     autoscalingv2.HorizontalPodAutoscalerSpec `json:"spec"`
	Replicas int32                                     `json:"replicas"`
	Steps    []Step                                    `json:"steps"`
}

// Step is what the autoscaler sees at one decision.
type Step struct {
	Pods     []corev1.Pod                 `json:"pods"`
	Running  int32                        `json:"running"`
	Usage    []resourcemetrics.PodMetrics `json:"usage"`
	Custom   []custommetrics.MetricValue  `json:"custom"`
	Object   *resource.Quantity           `json:"object,omitempty"`
	External []resource.Quantity          `json:"external"`
}

// Run returns the replicas after each step, if pods are divided among a number of clusters.
func (s *Scenario) Run(clusters int) ([]int32, error) {
	var history autoscale.History
	replicas := s.Replicas
	var all []int32
	for i := range s.Steps {
		now := Start.Add(time.Duration(i+1) * Interval)
		workload, readings, err := s.Steps[i].read(s.Spec.Metrics, clusters, now)
		if err != nil {
			return nil, err
		}
		workload.Replicas = replicas
		d := autoscale.Decide(&s.Spec, workload, readings, &history, Settings, now)
		if d.Replicas != replicas {
			history.Scaled(s.Spec.Behavior, replicas, d.Replicas, now)
			replicas = d.Replicas
		}
		all = append(all, replicas)
	}
	return all, nil
}

var errNone = errors.New("there are no metrics")

// read returns the state of the workload and of its metrics, added up over the clusters.
func (s *Step) read(metrics []autoscalingv2.MetricSpec, clusters int, now time.Time) (autoscale.Workload, []autoscale.Reading, error) {
	divided := make([][]*corev1.Pod, clusters)
	for i := range s.Pods {
		divided[i%clusters] = append(divided[i%clusters], &s.Pods[i])
	}
	workload := autoscale.Workload{Running: s.Running}
	for _, pods := range divided {
		workload.Pods = workload.Pods.Add(autoscale.Count(pods))
	}
	readings := make([]autoscale.Reading, len(metrics))
	for i, spec := range metrics {
		metric, ofPods, err := autoscale.MetricOf(spec)
		if err != nil {
			return workload, nil, err
		}
		r := &readings[i]
		switch {
		case ofPods:
			samples := autoscale.CustomSamples(s.Custom)
			if metric.Resource != "" {
				samples = autoscale.ResourceSamples(s.Usage, metric)
			}
			for _, pods := range divided {
				r.Sums = r.Sums.Add(autoscale.Sum(pods, metric, samples, autoscale.DefaultStartup, now))
			}
		case spec.Object != nil && s.Object != nil:
			r.Value = s.Object.MilliValue()
		case spec.External != nil && len(s.External) > 0:
			var values []int64
			for _, value := range s.External {
				values = append(values, value.MilliValue())
			}
			r.Value = autoscale.Total(values)
		default:
			r.Err = errNone
		}
	}
	return workload, readings, nil
}

// generator draws scenarios.
type generator struct{ *rand.Rand }

// New returns the scenario with a number. It is always the same.
func New(number uint64) *Scenario {
	g := generator{rand.New(rand.NewPCG(number, 0))}
	lowest := g.number(1, 4)
	s := &Scenario{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		MinReplicas:    &lowest, MaxReplicas: lowest + g.number(0, 30),
	}}
	s.Replicas = g.number(1, s.Spec.MaxReplicas)
	if g.chance(10) {
		s.Replicas = g.number(0, s.Spec.MaxReplicas+5)
	}
	for range g.number(1, 3) {
		s.Spec.Metrics = append(s.Spec.Metrics, g.metric())
	}
	if g.chance(60) {
		s.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: g.rules(), ScaleDown: g.rules()}
	}
	template := g.template()
	for i := range 12 {
		s.Steps = append(s.Steps, g.step(template, Start.Add(time.Duration(i+1)*Interval)))
	}
	return s
}

// number returns a number from low to high.
func (g generator) number(low, high int32) int32 { return low + g.Int32N(high-low+1) }

// chance returns true in some of a hundred cases.
func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g generator) quantity(low, high int64) *resource.Quantity {
	return resource.NewMilliQuantity(low+g.Int64N(high-low+1), resource.DecimalSI)
}

func (g generator) metric() autoscalingv2.MetricSpec {
	name := autoscalingv2.MetricIdentifier{Name: "requests"}
	utilization := g.number(20, 180)
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: g.quantity(50, 400)}
	value := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: g.quantity(500, 4000)}
	percent := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &utilization}
	object := autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "web"}
	resourceMetric := func(name corev1.ResourceName, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: target}}
	}
	containerMetric := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
			Name: corev1.ResourceCPU, Container: []string{"main", "side"}[g.IntN(2)], Target: target}}
	}
	switch g.IntN(11) {
	case 0, 1, 2:
		return resourceMetric(corev1.ResourceCPU, percent)
	case 3:
		return resourceMetric(corev1.ResourceCPU, average)
	case 4:
		return resourceMetric(corev1.ResourceMemory, percent)
	case 5:
		return containerMetric(percent)
	case 6:
		return containerMetric(average)
	case 7:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: name, Target: average}}
	case 8:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: object, Metric: name, Target: []autoscalingv2.MetricTarget{average, value}[g.IntN(2)]}}
	default:
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
			Metric: name, Target: []autoscalingv2.MetricTarget{average, value}[g.IntN(2)]}}
	}
}

func (g generator) rules() *autoscalingv2.HPAScalingRules {
	if g.chance(30) {
		return nil
	}
	r := &autoscalingv2.HPAScalingRules{}
	if g.chance(60) {
		window := g.number(0, 6) * 15
		r.StabilizationWindowSeconds = &window
	}
	if g.chance(60) {
		choice := []autoscalingv2.ScalingPolicySelect{autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect}[g.IntN(3)]
		r.SelectPolicy = &choice
	}
	if g.chance(30) {
		r.Tolerance = g.quantity(0, 400)
	}
	for range g.number(0, 2) {
		kind := []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy}[g.IntN(2)]
		policy := autoscalingv2.HPAScalingPolicy{Type: kind, Value: g.number(1, 5), PeriodSeconds: g.number(1, 75)}
		if kind == autoscalingv2.PercentScalingPolicy {
			policy.Value *= 20
		}
		r.Policies = append(r.Policies, policy)
	}
	return r
}

// template returns the spec of the pods.
func (g generator) template() corev1.PodSpec {
	requests := func() corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
		if !g.chance(2) {
			r.Requests[corev1.ResourceCPU] = *g.quantity(1, 300)
		}
		if !g.chance(2) {
			r.Requests[corev1.ResourceMemory] = *resource.NewQuantity(int64(g.number(1, 300))<<20, resource.BinarySI)
		}
		return r
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: requests()}}}
	always := corev1.ContainerRestartPolicyAlways
	switch g.IntN(4) {
	case 0:
		spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always, Resources: requests()}}
	case 1:
		spec.Containers = append(spec.Containers, corev1.Container{Name: "side", Resources: requests()})
	}
	if g.chance(10) {
		pod := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *g.quantity(600, 900)}}
		spec.Resources = &pod
	}
	return spec
}

func (g generator) step(template corev1.PodSpec, now time.Time) Step {
	count := g.number(0, 14)
	s := Step{Running: max(0, count+g.number(-2, 2)), Pods: []corev1.Pod{}, Usage: []resourcemetrics.PodMetrics{}, Custom: []custommetrics.MetricValue{}, External: []resource.Quantity{}}
	load, missing := g.Float64()*2.5, []int{0, 0, 20, 100}[g.IntN(4)]
	for i := range count {
		pod := g.pod(fmt.Sprintf("web-%d", i), template, now)
		s.Pods = append(s.Pods, pod)
		if g.chance(missing) {
			continue
		}
		at := metav1.NewTime(now.Add(-time.Duration(g.number(0, 60)) * time.Second))
		s.Usage = append(s.Usage, g.usage(&pod, load, at))
		value := custommetrics.MetricValue{DescribedObject: corev1.ObjectReference{Kind: "Pod", Name: pod.Name}, Timestamp: at, Value: *g.quantity(0, int64(400*load)+1)}
		if g.chance(50) {
			window := int64(g.number(10, 60))
			value.WindowSeconds = &window
		}
		s.Custom = append(s.Custom, value)
	}
	if !g.chance(10) {
		s.Object = g.quantity(0, int64(4000*load)+1)
	}
	for range g.number(0, 3) {
		s.External = append(s.External, *g.quantity(0, int64(2000*load)+1))
	}
	return s
}

func (g generator) pod(name string, template corev1.PodSpec, now time.Time) corev1.Pod {
	ago := func(most int32) metav1.Time {
		return metav1.NewTime(now.Add(-time.Duration(g.number(0, most)) * time.Second))
	}
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}, Spec: *template.DeepCopy()}
	p.Status.Phase = corev1.PodRunning
	if g.chance(15) {
		p.Status.Phase = []corev1.PodPhase{corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded}[g.IntN(3)]
	}
	if g.chance(5) {
		at := ago(30)
		p.DeletionTimestamp = &at
	}
	if !g.chance(3) {
		start := ago(900)
		p.Status.StartTime = &start
	}
	if !g.chance(3) {
		status := corev1.ConditionTrue
		if g.chance(20) {
			status = []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown}[g.IntN(2)]
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: ago(900)}}
	}
	return p
}

// usage returns metrics of a pod that uses a part of its requests.
func (g generator) usage(pod *corev1.Pod, load float64, at metav1.Time) resourcemetrics.PodMetrics {
	m := resourcemetrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Timestamp: at, Window: metav1.Duration{Duration: time.Duration(g.number(10, 60)) * time.Second}}
	for _, name := range []string{"main", "side"} {
		if name == "side" && len(pod.Spec.Containers)+len(pod.Spec.InitContainers) == 1 {
			continue
		}
		used := corev1.ResourceList{}
		if !g.chance(2) {
			nanos := int64(load * (0.5 + g.Float64()) * 150e6)
			used[corev1.ResourceCPU] = *resource.NewScaledQuantity(nanos, resource.Nano)
		}
		if !g.chance(2) {
			used[corev1.ResourceMemory] = *resource.NewQuantity(int64(load*(0.5+g.Float64())*150)<<20, resource.BinarySI)
		}
		m.Containers = append(m.Containers, resourcemetrics.ContainerMetrics{Name: name, Usage: used})
	}
	return m
}
