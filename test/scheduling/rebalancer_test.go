package scheduling_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appsv1alpha1 "github.com/cellplane/cellplane/api/apps/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/hub/workloadrebalancer"
	"github.com/cellplane/cellplane/internal/testenv"
)

// S27: a WorkloadRebalancer on the hub reschedules workloads in the cells, reports the result of each, and is
// deleted after its TTL. Workloads added later are handled, finished ones are not repeated.
func TestWorkloadRebalancer(t *testing.T) {
	mgr, err := manager.New(hubConfig, manager.Options{
		Scheme: enginetest.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	cells := func(context.Context) (map[string]ctrlclient.Client, error) {
		return map[string]ctrlclient.Client{"cell-a": cell, "cell-b": other}, nil
	}
	if err := workloadrebalancer.Add(mgr, workloadrebalancer.Options{Cells: cells}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	w := newWorld(t, "a", "b")
	w.capacity("a", 1)
	w.policy(aggregated)
	w.create(w.deployment("web", 4), w.deployment("late", 4))
	w.untilPlaced("web", "b:4")
	b := w.until("it was scheduled", "web", func(b *workv1alpha2.ResourceBinding) bool { return b.Status.LastScheduledTime != nil })
	w.until("it was scheduled", "late", func(b *workv1alpha2.ResourceBinding) bool { return b.Status.LastScheduledTime != nil })
	w.capacity("b", 0)
	w.capacity("a", 10)
	// Times have a resolution of one second: a request in the second of the last decision is not later.
	testenv.Eventually(t, "a second has passed", func(context.Context) (bool, error) {
		return time.Now().Truncate(time.Second).After(b.Status.LastScheduledTime.Add(time.Second)), nil
	})

	of := func(name string) appsv1alpha1.ObjectReference {
		return appsv1alpha1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: w.ns, Name: name}
	}
	rebalancer := &appsv1alpha1.WorkloadRebalancer{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Spec: appsv1alpha1.WorkloadRebalancerSpec{
		Workloads: []appsv1alpha1.ObjectReference{of("web"), of("missing")},
	}}
	if err := hub.Create(t.Context(), rebalancer); err != nil {
		t.Fatal(err)
	}
	finished := func(what string, want ...appsv1alpha1.ObservedWorkload) {
		t.Helper()
		testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
			if err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(rebalancer), rebalancer); err != nil {
				return false, err
			}
			if fmt.Sprint(rebalancer.Status.ObservedWorkloads) != fmt.Sprint(want) {
				return false, fmt.Errorf("status = %v", rebalancer.Status)
			}
			return rebalancer.Status.FinishTime != nil && rebalancer.Status.ObservedGeneration == rebalancer.Generation, nil
		})
	}
	success := func(name string) appsv1alpha1.ObservedWorkload {
		return appsv1alpha1.ObservedWorkload{Workload: of(name), Result: appsv1alpha1.RebalanceSuccessful}
	}
	missing := appsv1alpha1.ObservedWorkload{Workload: of("missing"), Result: appsv1alpha1.RebalanceFailed, Reason: appsv1alpha1.ReasonReferencedBindingNotFound}
	finished("both are handled", missing, success("web"))
	moved := w.untilPlaced("web", "a:4")
	if !moved.Spec.RescheduleTriggeredAt.Equal(&rebalancer.CreationTimestamp) {
		t.Errorf("rescheduleTriggeredAt = %v, want %v", moved.Spec.RescheduleTriggeredAt, rebalancer.CreationTimestamp)
	}

	edit := func(change func()) {
		t.Helper()
		testenv.Eventually(t, "the rebalancer can be changed", func(ctx context.Context) (bool, error) {
			if err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(rebalancer), rebalancer); err != nil {
				return false, err
			}
			change()
			err := hub.Update(ctx, rebalancer)
			return err == nil, err
		})
	}
	edit(func() { rebalancer.Spec.Workloads = append(rebalancer.Spec.Workloads, of("late")) })
	finished("the third is handled", success("late"), missing, success("web"))
	edit(func() { rebalancer.Spec.TTLSecondsAfterFinished = ptr.To[int32](1) })
	testenv.Eventually(t, "it is deleted", func(ctx context.Context) (bool, error) {
		err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(rebalancer), rebalancer)
		return ctrlclient.IgnoreNotFound(err) == nil && err != nil, err
	})
}
