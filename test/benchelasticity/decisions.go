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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// engine is the engine that decides.
const engine = "cell-a/engine"

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
	return until(ctx, "all workloads are in all clusters", func() (bool, error) {
		for _, cluster := range clusters {
			list := &appsv1.DeploymentList{}
			if err := f.members[cluster].List(ctx, list, client.InNamespace(namespace)); err != nil || len(list.Items) < s.autoscalers {
				return false, err
			}
		}
		return true, nil
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
	without, err := f.cores(ctx, []string{engine}, func() error { return r.steadily(ctx, s) })
	if err != nil {
		return 0, err
	}
	if err := createAutoscalers(ctx, f, s); err != nil {
		return 0, err
	}
	r.scaled = s.autoscalers
	err = until(ctx, "all autoscalers decide", func() (bool, error) {
		if err := r.report(ctx); err != nil {
			return false, err
		}
		list := &autoscalingv2.HorizontalPodAutoscalerList{}
		err := f.gateway.List(ctx, list, client.InNamespace(namespace))
		return !slices.ContainsFunc(list.Items, func(a autoscalingv2.HorizontalPodAutoscaler) bool { return !active(&a) }), err
	})
	if err != nil {
		return 0, err
	}
	before, err := f.podLists(ctx)
	if err != nil {
		return 0, err
	}
	with, err := f.cores(ctx, []string{engine}, func() error { return r.steadily(ctx, s) })
	if err != nil {
		return 0, err
	}
	after, err := f.podLists(ctx)
	if err != nil {
		return 0, err
	}
	fmt.Printf("%d autoscalers in a cell, which decide at least every 15 s\n", s.autoscalers)
	show("percent of a core, without autoscalers; with", "%.1f; %.1f   target of the difference for 5000: 5", 100*without, 100*with)
	return float64(after-before) / float64(s.autoscalers*s.rounds), nil // there are more decisions: one after each report
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
			var count float64
			if _, err := fmt.Sscanf(line[strings.LastIndex(line, "}")+1:], "%g", &count); err != nil {
				return 0, fmt.Errorf("reading %q: %w", line, err)
			}
			sum += int(count)
		}
	}
	return sum, nil
}
