package scheduling_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

const healthy = `{"replicas":2,"readyReplicas":2,"availableReplicas":2,"updatedReplicas":2,"observedGeneration":1}`

// F1, F2, F5, F6: a taint evicts a workload. The old copy is kept until the new one is healthy. Until then the
// cluster is not chosen again, even if the taint is removed.
func TestTaintEviction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.policy(aggregated, oneCluster, func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Placement.ClusterAffinity = w.affinity("a") })
	w.create(w.deployment("web", 2))
	w.untilPlaced("web", "a:2")
	w.report("a", "web", workv1alpha1.ResourceHealthy, healthy)
	w.editPolicy(func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Placement.ClusterAffinity = w.affinity() })
	w.untilPlaced("web", "a:2")

	w.taint("a", noExecute("down"))
	b := w.untilPlaced("web", "b:2")
	if len(b.Spec.GracefulEvictionTasks) != 1 {
		t.Fatalf("tasks = %+v", b.Spec.GracefulEvictionTasks)
	}
	task := b.Spec.GracefulEvictionTasks[0]
	if task.FromCluster != w.full("a") || task.PurgeMode != policyv1alpha1.PurgeModeGracefully || task.Reason != names.EvictionReasonTaintUntolerated ||
		task.Producer != names.EvictionProducerTaintManager || ptr.Deref(task.Replicas, 0) != 2 || !slices.Equal(task.ClustersBeforeFailover, []string{w.full("a")}) {
		t.Errorf("task = %+v", task)
	}
	w.untilEvent("web", names.EventEvictWorkloadFromClusterSucceed)
	w.untilWork("b", "web")
	w.taint("a")
	w.editPolicy(func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.ReplicaScheduling, p.Spec.Placement.SpreadConstraints = nil, nil // everywhere
	})
	w.until("it is scheduled to all eligible clusters", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return w.placed(b) == "b:2" && b.Status.SchedulerObservedGeneration == b.Generation && len(b.Spec.GracefulEvictionTasks) == 1
	})
	w.untilWork("a", "web")

	w.report("b", "web", workv1alpha1.ResourceHealthy, healthy)
	w.until("the eviction is finished", "web", func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.GracefulEvictionTasks) == 0 })
	w.untilPlaced("web", "a:2 b:2")
}

// F1: a workload stays while it tolerates the taint, for a time or forever.
func TestTolerationSeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	tolerating := func(seconds *int64) func(*policyv1alpha1.PropagationPolicy) {
		return func(p *policyv1alpha1.PropagationPolicy) {
			aggregated(p)
			oneCluster(p)
			p.Spec.Placement.ClusterTolerations = []corev1.Toleration{{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: seconds}}
		}
	}
	w.policy(tolerating(nil))
	w.create(w.deployment("web", 2))
	b := w.until("it is placed", "web", func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) == 1 })
	home, elsewhere := "a", "b"
	if w.placed(b) == "b:2" {
		home, elsewhere = "b", "a"
	}
	w.taint(home, noExecute("down"))
	w.editPolicy(tolerating(ptr.To[int64](3600)))
	b = w.untilScheduled("web", names.ReasonSuccess)
	if w.placed(b) != home+":2" {
		t.Fatalf("a workload that tolerates the taint is in %s", w.placed(b))
	}
	w.editPolicy(tolerating(ptr.To[int64](1)))
	w.untilPlaced("web", elsewhere+":2")
}

// F1, F4, B2: with purge mode Directly the old copy is deleted before the new one is created, with the preserved
// state.
func TestDirectlyWithState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.policy(aggregated, oneCluster, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Failover = &policyv1alpha1.FailoverBehavior{Cluster: &policyv1alpha1.ClusterFailoverBehavior{
			PurgeMode: policyv1alpha1.PurgeModeDirectly,
			StatePreservation: &policyv1alpha1.StatePreservation{Rules: []policyv1alpha1.StatePreservationRule{
				{AliasLabelName: "failover.example.io/ready", JSONPath: "{.readyReplicas}"},
			}},
		}}
	})
	w.create(w.deployment("web", 2))
	w.untilPlaced("web", "a:2")
	w.report("a", "web", workv1alpha1.ResourceHealthy, healthy)
	w.until("the status is known", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Status != nil
	})
	w.join("b")
	w.taint("a", noExecute("down"))
	b := w.untilPlaced("web", "b:2")
	if task := b.Spec.GracefulEvictionTasks[0]; task.PurgeMode != policyv1alpha1.PurgeModeDirectly || task.PreservedLabelState["failover.example.io/ready"] != "2" {
		t.Errorf("task = %+v", task)
	}
	// This test plays the agent, so the old copy exists until the test removes it. Another workload shows that b is
	// served.
	old := w.work("a", "web")
	testenv.Eventually(t, "the old copy is being deleted", func(ctx context.Context) (bool, error) {
		err := w.client.Get(ctx, keyOf(old), old)
		return err == nil && old.DeletionTimestamp != nil, err
	})
	w.create(w.deployment("barrier", 1))
	w.untilWork("b", "barrier")
	if err := w.client.Get(t.Context(), keyOf(w.work("b", "web")), w.work("b", "web")); !apierrors.IsNotFound(err) {
		t.Errorf("the new copy is created before the old one is deleted: %v", err)
	}
	w.untilNoWork("a", "web")
	work := w.untilWork("b", "web")
	if labels := manifestOf(t, work).GetLabels(); labels["failover.example.io/ready"] != "2" {
		t.Errorf("labels of the new copy = %v", labels)
	}
}

// F3, F6: an unhealthy workload is moved after the toleration of its policy, in each purge mode.
func TestApplicationFailover(t *testing.T) {
	t.Parallel()
	for _, mode := range []policyv1alpha1.PurgeMode{policyv1alpha1.PurgeModeGracefully, policyv1alpha1.PurgeModeNever, policyv1alpha1.PurgeModeDirectly} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a")
			w.policy(aggregated, oneCluster, func(p *policyv1alpha1.PropagationPolicy) {
				p.Spec.PropagateDeps = true
				p.Spec.Failover = &policyv1alpha1.FailoverBehavior{Application: &policyv1alpha1.ApplicationFailoverBehavior{
					DecisionConditions: policyv1alpha1.DecisionConditions{TolerationSeconds: ptr.To[int32](1)}, PurgeMode: mode,
				}}
				if mode == policyv1alpha1.PurgeModeGracefully {
					p.Spec.Failover.Application.GracePeriodSeconds = ptr.To[int32](120)
				}
			})
			w.create(w.deployment("web", 2))
			w.untilPlaced("web", "a:2")
			w.report("a", "web", workv1alpha1.ResourceHealthy, healthy)
			w.join("b")
			w.report("a", "web", workv1alpha1.ResourceUnhealthy, `{"replicas":2,"unavailableReplicas":2,"observedGeneration":1}`)
			b := w.untilPlaced("web", "b:2")
			task := b.Spec.GracefulEvictionTasks[0]
			if task.Reason != names.EvictionReasonApplicationFailure || task.Producer != names.EvictionProducerResourceBindingFailover || task.PurgeMode != mode {
				t.Errorf("task = %+v", task)
			}
			switch mode {
			case policyv1alpha1.PurgeModeDirectly:
				w.untilNoWork("a", "web")
			case policyv1alpha1.PurgeModeNever:
				if !ptr.Deref(task.SuppressDeletion, false) {
					t.Errorf("task = %+v", task)
				}
				w.report("b", "web", workv1alpha1.ResourceHealthy, healthy)
				w.until("the new copy is healthy", "web", func(b *workv1alpha2.ResourceBinding) bool {
					return slices.ContainsFunc(b.Status.AggregatedStatus, func(i workv1alpha2.AggregatedStatusItem) bool {
						return i.ClusterName == w.full("b") && i.Health == workv1alpha2.ResourceHealthy
					})
				})
				w.editBinding("web", func(b *workv1alpha2.ResourceBinding) {
					if len(b.Spec.GracefulEvictionTasks) != 1 {
						t.Fatalf("the task ended although deletion is suppressed: %+v", b.Spec)
					}
					b.Spec.GracefulEvictionTasks[0].SuppressDeletion = ptr.To(false)
				})
				w.untilNoWork("a", "web")
			default:
				if ptr.Deref(task.GracePeriodSeconds, 0) != 120 {
					t.Errorf("task = %+v", task)
				}
				w.untilWork("a", "web")
				w.report("b", "web", workv1alpha1.ResourceHealthy, healthy)
				w.untilNoWork("a", "web")
			}
		})
	}
}

// F3: application failover without propagateDeps is rejected, because the dependencies would not move with the
// workload.
func TestApplicationFailoverNeedsDependencies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "policy"}}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}}
	p.Spec.Failover = &policyv1alpha1.FailoverBehavior{Application: &policyv1alpha1.ApplicationFailoverBehavior{
		DecisionConditions: policyv1alpha1.DecisionConditions{TolerationSeconds: ptr.To[int32](0)},
	}}
	if err := w.client.Create(t.Context(), p); !apierrors.IsInvalid(err) {
		t.Errorf("the policy is accepted: %v", err)
	}
}

// F7: a workload fails back to the cluster it was evicted from only if its policy says so.
func TestFailBack(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		t.Run(map[bool]string{true: "with the annotation", false: "without the annotation"}[asked], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b")
			w.policy(aggregated, func(p *policyv1alpha1.PropagationPolicy) {
				if asked {
					p.Annotations = map[string]string{names.FailBackAnnotation: "1s"}
				}
				p.Spec.Placement.ClusterAffinity = nil
				p.Spec.Placement.ClusterAffinities = []policyv1alpha1.ClusterAffinityTerm{
					{AffinityName: "home", ClusterAffinity: *w.affinity("a")}, {AffinityName: "away", ClusterAffinity: *w.affinity("b")},
				}
			})
			w.create(w.deployment("web", 2))
			w.untilPlaced("web", "a:2")
			w.taint("a", noExecute("down"))
			w.untilPlaced("web", "b:2")
			w.report("b", "web", workv1alpha1.ResourceHealthy, healthy)
			w.until("the eviction is finished", "web", func(b *workv1alpha2.ResourceBinding) bool {
				return len(b.Spec.GracefulEvictionTasks) == 0 && b.Status.SchedulerObservedAffinityName == "away"
			})
			w.taint("a")
			if asked {
				b := w.untilPlaced("web", "a:2")
				if b.Annotations[names.EvictedFromAnnotation] != "" {
					t.Errorf("it may still fail back to %s", b.Annotations[names.EvictedFromAnnotation])
				}
				return
			}
			// Another workload shows that the cluster is used again.
			w.create(w.deployment("next", 1))
			w.untilPlaced("next", "a:1")
			if b := w.untilPlaced("web", "b:2"); b.Spec.RescheduleTriggeredAt != nil {
				t.Error("it was rescheduled")
			}
		})
	}
}
