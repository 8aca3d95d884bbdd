package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

const (
	// The workload whose update is measured: its replicas are divided equally, and so are its bounds.
	rolloutName        = "rollout"
	rolloutReplicas    = 30
	rolloutSurge       = 6
	rolloutUnavailable = 3

	rolloutWritesTarget = 15  // requests to the cell
	rolloutRatioTarget  = 1.5 // of the time that one member needs for its share

	rolloutPoll = 20 * time.Millisecond
)

// rollouts measures image updates of a Deployment with divided replicas. For comparison, one member updates a share of it by itself, with its share of the bounds,
// before each of them.
func (b *bench) rollouts(ctx context.Context) (*section, error) {
	cell, err := b.fed.objects()
	if err != nil {
		return nil, err
	}
	if err := cell.Create(ctx, divided()); err != nil {
		return nil, err
	}
	share, member := int32(rolloutReplicas/memberCount), b.fed.members[0].client.AppsV1().Deployments(metav1.NamespaceDefault)
	alone := rolling(metav1.NamespaceDefault, share, rolloutSurge/memberCount, rolloutUnavailable/memberCount)
	if _, err := member.Create(ctx, alone, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if _, err := b.templates.Create(ctx, rolling(benchNamespace, rolloutReplicas, rolloutSurge, rolloutUnavailable), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	copies := make([]appsclient.DeploymentInterface, 0, memberCount)
	for _, m := range b.fed.members {
		copies = append(copies, m.client.AppsV1().Deployments(benchNamespace))
	}
	if err := untilUpdated(ctx, firstImage, share, append(copies, member)...); err != nil {
		return nil, err
	}

	var together, single, ratios []float64
	all := requests{}
	for i := range b.options.rollouts {
		image := fmt.Sprintf("registry.example/team/app:rollout-%d", i)
		reference, err := timeUpdate(ctx, image, share, member, member)
		if err != nil {
			return nil, err
		}
		before, err := b.ledger.settle(ctx)
		if err != nil {
			return nil, err
		}
		took, err := timeUpdate(ctx, image, share, b.templates, copies...)
		if err != nil {
			return nil, err
		}
		after, err := b.ledger.settle(ctx)
		if err != nil {
			return nil, err
		}
		for key, count := range after.writes.since(before.writes) {
			all[key] += count
		}
		together, single, ratios = append(together, took.Seconds()), append(single, reference.Seconds()), append(ratios, took.Seconds()/reference.Seconds())
	}
	s := &section{
		Title:  fmt.Sprintf("%d image updates of a Deployment with %d replicas in %d members", b.options.rollouts, rolloutReplicas, memberCount),
		Writes: all.of(b.options.rollouts), WritesEach: "each",
	}
	s.add("writes to the cell, each", s.Writes.total(), "").atMost(rolloutWritesTarget)
	s.add("until all members are updated, p50", middle(together), unitSeconds)
	s.add("one member alone with its share, p50", middle(single), unitSeconds)
	s.add("ratio, p50", middle(ratios), "").atMost(rolloutRatioTarget)
	return s, nil
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// divided divides the replicas of the Deployment whose rollout is measured.
func divided() *policyv1alpha1.PropagationPolicy {
	return &policyv1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: benchNamespace, Name: "divided"},
		Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: rolloutName}},
			Placement: policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{
				ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
			}},
		},
	}
}

func rolling(namespace string, replicas int32, surge, unavailable int) *appsv1.Deployment {
	d := deployment(rolloutName, replicas)
	d.Namespace = namespace
	maxSurge, maxUnavailable := intstr.FromInt(surge), intstr.FromInt(unavailable)
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &maxSurge, MaxUnavailable: &maxUnavailable}
	return d
}

// timeUpdate changes the image of a Deployment, and returns how long it takes until its copies are updated.
func timeUpdate(ctx context.Context, image string, share int32, template appsclient.DeploymentInterface, copies ...appsclient.DeploymentInterface) (time.Duration, error) {
	began := time.Now()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, containerName, image)
	if _, err := template.Patch(ctx, rolloutName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return 0, err
	}
	err := untilUpdated(ctx, image, share, copies...)
	return time.Since(began), err
}

// untilUpdated waits until all pods of copies have an image and are ready.
func untilUpdated(ctx context.Context, image string, replicas int32, copies ...appsclient.DeploymentInterface) error {
	ctx, cancel := context.WithTimeout(ctx, stallBound)
	defer cancel()
	for _, of := range copies {
		err := wait.PollUntilContextCancel(ctx, rolloutPoll, true, func(ctx context.Context) (bool, error) {
			d, err := of.Get(ctx, rolloutName, metav1.GetOptions{})
			if err != nil {
				return false, ctx.Err() // it is not there yet
			}
			return imageOf(d) == image && settled(d, replicas), nil
		})
		if err != nil {
			return fmt.Errorf("waiting for image %s: %w", image, err)
		}
	}
	return nil
}
