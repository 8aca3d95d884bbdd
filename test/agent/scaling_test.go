package agent

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// The workloads that are scaled: by a FederatedHPA, by a HorizontalPodAutoscaler of the federation, and not by one that a policy propagates.
const (
	burst = "burst"
	plain = "plain"
	kept  = "kept"
)

func targetOf(name string) autoscalingv2.CrossVersionObjectReference {
	return autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
}

// scaler has another name than its target, so that it may be in another cell.
func scaler() *autoscalingv1alpha1.FederatedHPA {
	return &autoscalingv1alpha1.FederatedHPA{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scales-" + burst}, Spec: autoscalingv1alpha1.FederatedHPASpec{
		ScaleTargetRef: targetOf(burst), MaxReplicas: 6,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}}}},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0)}},
	}}
}

func hpa(name string, lowest, highest int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: targetOf(name), MinReplicas: &lowest, MaxReplicas: highest,
	}}
}

// only places a kind, or one object of it, in one cluster.
func only(cluster, apiVersion, kind, name string) *policyv1alpha1.PropagationPolicy {
	policy := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "only-" + name}}
	policy.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: apiVersion, Kind: kind, Name: name}}
	policy.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: []string{cluster}}
	return policy
}

func replicas(n int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n }
}

// says checks a condition of an autoscaler, and that its message has a text.
func says(of autoscalingv2.HorizontalPodAutoscalerConditionType, is corev1.ConditionStatus, reason, text string) func(*autoscalingv1alpha1.FederatedHPA) bool {
	return func(a *autoscalingv1alpha1.FederatedHPA) bool {
		for _, c := range a.Status.Conditions {
			if c.Type == of {
				return c.Status == is && c.Reason == reason && strings.Contains(c.Message, text)
			}
		}
		return false
	}
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, object := range objects {
		if err := w.gateway.Create(w.Context(), object); err != nil {
			w.Fatal(err)
		}
	}
}

// divided divides the replicas of a Deployment between both clusters.
func divided(name string) *policyv1alpha1.PropagationPolicy {
	policy := only(pushed, "apps/v1", "Deployment", name)
	policy.Name = "divided-" + name
	policy.Spec.Placement.ClusterAffinity.ClusterNames = []string{pushed, pulled}
	policy.Spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
	}
	return policy
}

// workloadsAreScaled checks the way from the usage in a member to the replicas there, and what keeps an autoscaler from scaling down.
func (w *world) workloadsAreScaled() {
	policies := []client.Object{only(pushed, "autoscaling/v2", "HorizontalPodAutoscaler", kept), divided(burst)}
	for _, name := range []string{plain, kept} {
		policies = append(policies, only(pulled, "apps/v1", "Deployment", name))
	}
	policies[3].SetName("only-deployment-" + kept)
	w.create(policies...)
	for _, name := range []string{burst, plain, kept} {
		d := deployment(name)
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		w.create(d)
	}
	w.create(hpa(kept, 1, 1), hpa(plain, 3, 5), scaler())
	for _, name := range []string{burst, kept} {
		until(w, name+" runs", w.gateway, deployment(name), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
	}
	until(w, "a policy propagates the autoscaler", w.gateway, hpa(kept, 1, 1), func(h *autoscalingv2.HorizontalPodAutoscaler) bool {
		return !cell.ClaimOf(h.Labels, h.Annotations).Empty()
	})

	w.use(burst, "1")
	until(w, "it is scaled up", w.gateway, deployment(burst), replicas(4))
	for _, member := range []client.Client{w.member, w.other} {
		until(w, "half of the replicas are in a member", member, deployment(burst), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
	}
	until(w, "the autoscaler says so", w.gateway, scaler(), func(a *autoscalingv1alpha1.FederatedHPA) bool {
		s := &a.Status
		return s.CurrentReplicas == 4 && s.DesiredReplicas == 4 && s.LastScaleTime != nil && len(s.CurrentMetrics) == 1 && says(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "cpu")(a)
	})

	protection := &cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-scale-down"}, Spec: cellplanev1alpha1.ProtectionPolicySpec{
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}, Namespaces: []string{namespace}}},
		ScaleDown:         &cellplanev1alpha1.ScaleDownProtection{Window: &cellplanev1alpha1.ScaleDownWindow{Seconds: 3600, MaxDecrease: intstr.FromInt32(0)}},
	}}
	w.create(protection)
	w.use(burst, "100m")
	until(w, "a protection policy refuses to scale down", w.gateway, scaler(), says(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", "no-scale-down"))

	w.signalAgent("halt")
	until(w, "the silent cluster is named", w.gateway, scaler(), says(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", pulled))
	if err := w.gateway.Delete(w.Context(), protection); err != nil {
		w.Fatal(err)
	}
	w.limitsFollowTheClock()
	until(w, "it is not scaled down while a cluster is silent", w.gateway, deployment(burst), replicas(4))
	w.signalAgent("restart")
	until(w, "it is scaled down", w.gateway, deployment(burst), replicas(1))
	w.refusedOnce()

	until(w, "the autoscaler without a policy scales", w.gateway, deployment(plain), replicas(3))
	until(w, "the autoscaler with a policy does not", w.gateway, deployment(kept), replicas(2))
}

// refusedOnce checks that the same refusal of the protection policy is one event, though it was tried once in each period.
func (w *world) refusedOnce() {
	w.Helper()
	events := &corev1.EventList{}
	if err := w.gateway.List(w.Context(), events, client.InNamespace(namespace)); err != nil {
		w.Fatal(err)
	}
	said := map[string]int32{}
	for _, e := range events.Items {
		if e.InvolvedObject.Name == scaler().Name && e.Reason == "FailedRescale" && strings.Contains(e.Message, "no-scale-down") {
			said[e.Message] += max(e.Count, 1)
		}
	}
	for message, count := range said {
		if count != 1 {
			w.Errorf("%d events say %q", count, message)
		}
	}
	if len(said) == 0 {
		w.Error("no event says that the policy has refused")
	}
}

// limitsFollowTheClock checks that a CronFederatedHPA changes an autoscaler, which then decides with what it was changed to.
func (w *world) limitsFollowTheClock() {
	cron := &autoscalingv1alpha1.CronFederatedHPA{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hours"}, Spec: autoscalingv1alpha1.CronFederatedHPASpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "FederatedHPA", Name: scaler().Name},
		Rules:          []autoscalingv1alpha1.CronFederatedHPARule{{Name: "day", Schedule: "@every 1s", TargetMaxReplicas: ptr.To[int32](8)}},
	}}
	w.create(cron)
	until(w, "the rule has run", w.gateway, cron, func(c *autoscalingv1alpha1.CronFederatedHPA) bool {
		histories := c.Status.ExecutionHistories
		return len(histories) == 1 && len(histories[0].SuccessfulExecutions) > 0 && histories[0].NextExecutionTime != nil && *histories[0].SuccessfulExecutions[0].AppliedMaxReplicas == 8
	})
	if err := w.gateway.Delete(w.Context(), cron); err != nil {
		w.Fatal(err)
	}
	until(w, "the autoscaler decides with the new limits", w.gateway, scaler(), func(a *autoscalingv1alpha1.FederatedHPA) bool {
		return a.Spec.MaxReplicas == 8 && ptr.Deref(a.Status.ObservedGeneration, 0) == a.Generation
	})
}

// scalesAfterTheMove checks that the engine of the remaining cell scales what has moved to it.
func (w *world) scalesAfterTheMove() {
	w.use(burst, "1")
	until(w, "it is scaled up after the move", w.gateway, deployment(burst), replicas(2))
}
