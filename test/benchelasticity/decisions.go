package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// engine is the engine that decides, and reporting are the parts that take reports.
const engine = "cell-a/engine"

var reporting = []string{"gateway", "cluster-gateway"}

// writers is how many objects are created at the same time.
const writers = 8

// createWorkloads creates the workloads that have an autoscaler, one replica in each cluster, and waits until they are there. They are paused: there are no pods.
func createWorkloads(ctx context.Context, f *federation, s settings) error {
	policy := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"}}
	policy.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}}
	policy.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: clusters}
	policy.Spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
	}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, policy} {
		if err := f.gateway.Create(ctx, object); err != nil {
			return err
		}
	}
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range s.autoscalers {
		group.Go(func() error { return f.gateway.Create(creating, deployment(workload(i))) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return until(ctx, "all workloads are in all clusters, and their status has come back", func() (bool, error) {
		list := &appsv1.DeploymentList{}
		err := f.gateway.List(ctx, list, client.InNamespace(namespace))
		return len(list.Items) == s.autoscalers && !slices.ContainsFunc(list.Items, func(d appsv1.Deployment) bool {
			return d.Status.ObservedGeneration != d.Generation
		}), err
	})
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(len(clusters))), Paused: true, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "web", Image: "nginx", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: *resource.NewMilliQuantity(request, resource.DecimalSI)}},
			}}}},
		},
	}
}

func createAutoscalers(ctx context.Context, f *federation, s settings) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range s.autoscalers {
		group.Go(func() error {
			return f.gateway.Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: workload(i)},
				Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
					ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: workload(i)}, MaxReplicas: 100,
					Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
						Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](usual * 100 / request)}}}},
				},
			})
		})
	}
	return group.Wait()
}

// measureDecisions measures the engine with and without autoscalers, while reports come. It returns how often pods have been listed in members for a decision.
func measureDecisions(ctx context.Context, f *federation, r *reporters, s settings) (lists float64, err error) {
	if err := createWorkloads(ctx, f, s); err != nil {
		return 0, err
	}
	measured := s.interval * time.Duration(s.rounds)
	without, err := f.cores(ctx, []string{engine}, func() error { return pause(ctx, measured) })
	if err != nil {
		return 0, err
	}
	if err := createAutoscalers(ctx, f, s); err != nil {
		return 0, err
	}
	r.scaled.Store(int32(s.autoscalers))
	err = until(ctx, "all autoscalers decide", func() (bool, error) {
		list := &autoscalingv2.HorizontalPodAutoscalerList{}
		err := f.gateway.List(ctx, list, client.InNamespace(namespace))
		return !slices.ContainsFunc(list.Items, func(a autoscalingv2.HorizontalPodAutoscaler) bool { return !active(&a) }), err
	})
	if err != nil {
		return 0, err
	}
	if err := r.all(ctx); err != nil {
		return 0, err
	}
	before, err := f.counted(ctx)
	if err != nil {
		return 0, err
	}
	with, err := f.cores(ctx, []string{engine}, func() error { return pause(ctx, measured) })
	if err != nil {
		return 0, err
	}
	after, err := f.counted(ctx)
	if err != nil {
		return 0, err
	}
	decisions := after.decisions - before.decisions
	if decisions == 0 {
		return 0, errors.New("there were no decisions")
	}
	fmt.Printf("%d autoscalers in a cell, which decide after the report of each cluster, and at least every 15 s\n", s.autoscalers)
	show("percent of a core, without autoscalers; with; difference", "%.1f; %.1f; %.1f   target of the difference for 5000 every 15 s: 5", 100*without, 100*with, 100*(with-without))
	show("decisions about a workload in 15 s", "%.1f", decisions/measured.Seconds()*15/float64(s.autoscalers))
	show("CPU of a decision", "%.0f µs   target: 150 µs", (with-without)*measured.Seconds()/decisions*1e6)
	return float64(after.lists-before.lists) / decisions, nil
}

// counts are how often the engine has decided, and how often pods have been listed in members.
type counts struct {
	decisions float64
	lists     int
}

func (f *federation) counted(ctx context.Context) (c counts, err error) {
	if c.decisions, err = f.decisions(ctx); err != nil {
		return c, err
	}
	c.lists, err = f.podLists(ctx)
	return c, err
}

// decisions returns how often the engine has decided.
func (f *federation) decisions(ctx context.Context) (sum float64, err error) {
	address, err := f.address(engine)
	if err != nil {
		return 0, err
	}
	text, err := metrics(ctx, &rest.Config{Host: "http://" + address})
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the engine: %w", err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "federatedhpa_process_duration_seconds_count{") {
			count, err := valueOf(line)
			if err != nil {
				return 0, err
			}
			sum += count
		}
	}
	return sum, nil
}

// valueOf returns the value in a line of metrics that has labels.
func valueOf(line string) (value float64, err error) {
	if _, err := fmt.Sscanf(line[strings.LastIndex(line, "}")+1:], "%g", &value); err != nil {
		return 0, fmt.Errorf("reading %q: %w", line, err)
	}
	return value, nil
}

func active(a *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(a.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionTrue
	})
}

// patience bounds how long something may take.
const patience = 10 * time.Minute

// until polls until a condition holds.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		is, err := done()
		if is && err == nil {
			return nil
		}
		if pause(ctx, time.Second) != nil {
			return fmt.Errorf("waiting until %s: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}

// podLists returns how often pods have been listed in all members. API servers count it.
func (f *federation) podLists(ctx context.Context) (int, error) {
	sum := 0
	for _, cluster := range clusters {
		config, err := f.config(cluster)
		if err != nil {
			return 0, err
		}
		text, err := metrics(ctx, config)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="pods"`) || !strings.Contains(line, `verb="LIST"`) {
				continue
			}
			count, err := valueOf(line)
			if err != nil {
				return 0, err
			}
			sum += int(count)
		}
	}
	return sum, nil
}
