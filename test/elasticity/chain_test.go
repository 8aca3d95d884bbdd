package elasticity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/metricsapi"
)

const namespace = "demo"

// usageCPU is the annotation that says what a simulated pod uses, and idle what pods use if a test does not say otherwise.
const (
	usageCPU = "kwok.x-k8s.io/usage-cpu"
	idle     = "1m"
)

// TestChain scales by what simulated pods use in three clusters, while parts of the chain fail.
func TestChain(t *testing.T) {
	w := newWorld(t)
	w.run("kubectl", "create", "namespace", namespace)
	w.create(divided("web"), divided("jobs"), deployment("web"), deployment("jobs"))
	for _, name := range []string{"web", "jobs"} {
		until(w, name+" runs in all members", w.gateway, deployment(name), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == int32(len(members)) })
	}
	w.create(autoscaler("web", autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}}}))
	w.scalesByExternalMetrics()

	w.use("1", members...)
	w.scaledTo("web", 6)
	for what, shown := range map[string]string{"pods": "web-", "nodes": "member"} {
		count := map[string]int{"pods": 6, "nodes": len(members)}[what]
		testenv.Eventually(t, "kubectl top shows the "+what+" of all members", func(ctx context.Context) (bool, error) {
			top, err := w.command(ctx, "kubectl", "top", what, "-n", namespace).CombinedOutput()
			return err == nil && strings.Count(string(top), shown) == count && !strings.Contains(string(top), "unknown"), err
		})
	}

	w.signal(pulled+"/agent", "halt")
	w.signal("cluster-gateway", "restart")
	w.use("100m", "member1", "member2")
	w.notLowered("web", 6, pulled)
	w.use("100m", pulled)
	w.signal(pulled+"/agent", "restart")
	w.scaledTo("web", 3)

	w.tellsWhatItWrites("web")
	w.tellsWhatItWrites("jobs")

	w.run("cells", "drain", "cell-b")
	w.use("1", members...)
	w.scaledTo("web", 6)

	w.signal("member1/kube-apiserver", "pause")
	w.use("100m", "member2", pulled)
	w.notLowered("web", 6, "member1")
	w.signal("member1/kube-apiserver", "resume")
	w.use("100m", "member1")
	w.scaledTo("web", 3)
}

// scalesByExternalMetrics checks the way of an external metric, of which every cluster has a part.
func (w *world) scalesByExternalMetrics() {
	servers := map[string]*metricsapi.Server{}
	for _, member := range members {
		servers[member] = metricsapi.Start(w, w.config(member))
		servers[member].SetExternal(namespace, "queue", "name=jobs", "20")
	}
	ten := resource.MustParse("10")
	w.create(autoscaler("jobs", autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "queue", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "jobs"}}},
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &ten}}}))
	w.scaledTo("jobs", 6)
	for member, server := range servers {
		for _, asked := range server.Asked() {
			if !strings.HasSuffix(asked, "/namespaces/"+namespace+"/queue?labelSelector=name=jobs") || strings.HasPrefix(asked, " ") {
				w.Errorf("%s was asked for %q", member, asked)
			}
		}
	}
	servers["member1"].SetExternal(namespace, "queue", "name=jobs", "0")
	servers["member2"].SetExternal(namespace, "queue", "name=jobs", "20", "10")
	servers[pulled].SetExternal(namespace, "queue", "name=jobs", "10")
	w.scaledTo("jobs", 4)
}

// tellsWhatItWrites checks that each change of the replicas of a workload was one decision: its autoscaler has an event for each.
func (w *world) tellsWhatItWrites(name string) {
	w.Helper()
	testenv.Eventually(w, "there is an event for each change of "+name, func(ctx context.Context) (bool, error) {
		scaled, all := deployment(name), &corev1.EventList{}
		if err := errors.Join(w.gateway.Get(ctx, client.ObjectKeyFromObject(scaled), scaled), w.gateway.List(ctx, all, client.InNamespace(namespace))); err != nil {
			return false, err
		}
		var told []string
		for _, event := range all.Items {
			if event.InvolvedObject.Kind == "FederatedHPA" && event.InvolvedObject.Name == name && strings.HasSuffix(event.Reason, "Rescale") {
				told = append(told, fmt.Sprintf("%s %s: %s", event.FirstTimestamp.Format(time.TimeOnly), event.Reason, event.Message))
			}
		}
		changes := scaled.Generation - 2 // it was created, and claimed by its policy: annotations of a Deployment count
		return int64(len(told)) == changes, fmt.Errorf("%d changes and these events:\n%s", changes, strings.Join(told, "\n"))
	})
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(len(members))), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{usageCPU: idle}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "web", Image: "nginx", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			}}}},
		},
	}
}

// divided divides the replicas of a Deployment among all members.
func divided(name string) *policyv1alpha1.PropagationPolicy {
	policy := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	policy.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: name}}
	policy.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: members}
	policy.Spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
	}
	return policy
}

func autoscaler(name string, metric autoscalingv2.MetricSpec) *autoscalingv1alpha1.FederatedHPA {
	return &autoscalingv1alpha1.FederatedHPA{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: autoscalingv1alpha1.FederatedHPASpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
		MinReplicas:    ptr.To(int32(len(members))), MaxReplicas: 12, Metrics: []autoscalingv2.MetricSpec{metric},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0)}},
	}}
}

// use sets what a pod of the workload web uses in some members: one that was busy before, or else any. The others are idle.
func (w *world) use(cpu string, where ...string) {
	w.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, usageCPU, cpu))
	for _, member := range where {
		testenv.Eventually(w, "the pods of "+member+" use "+cpu, func(ctx context.Context) (bool, error) {
			pods := &corev1.PodList{}
			if err := w.in[member].List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": "web"}); err != nil || len(pods.Items) == 0 {
				return false, err
			}
			busy := &pods.Items[0]
			for i := range pods.Items {
				if pods.Items[i].Annotations[usageCPU] != idle && pods.Items[i].DeletionTimestamp == nil {
					busy = &pods.Items[i]
				}
			}
			err := w.in[member].Patch(ctx, busy, patch)
			return err == nil, err
		})
	}
}

// scaledTo waits until a workload has these replicas, the same number in each member.
func (w *world) scaledTo(name string, replicas int32) {
	w.Helper()
	until(w, fmt.Sprintf("%s has %d replicas", name, replicas), w.gateway, deployment(name), func(d *appsv1.Deployment) bool {
		return *d.Spec.Replicas == replicas && d.Status.ReadyReplicas == replicas && d.Status.Replicas == replicas
	})
	if replicas%int32(len(members)) != 0 {
		return
	}
	for _, member := range members {
		until(w, "a third is in "+member, w.in[member], deployment(name), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas*int32(len(members)) == replicas })
	}
}

// notLowered checks that a workload keeps its replicas while a cluster is silent, though the others report that little is used.
func (w *world) notLowered(name string, replicas int32, silent string) {
	w.Helper()
	for _, member := range members {
		if member == silent {
			continue
		}
		metrics := &metricsv1alpha1.WorkloadMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.WorkloadMetricsName("Deployment", name, member)}}
		until(w, "little is used in "+member, w.gateway, metrics, func(m *metricsv1alpha1.WorkloadMetrics) bool {
			return len(m.Metrics) > 0 && m.Metrics[0].Measured.Pods > 0 && m.Metrics[0].Measured.Usage.MilliValue() < 300
		})
	}
	scaler := &autoscalingv1alpha1.FederatedHPA{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	until(w, silent+" is named", w.gateway, scaler, func(a *autoscalingv1alpha1.FederatedHPA) bool {
		for _, c := range a.Status.Conditions {
			if c.Type == autoscalingv2.ScalingActive {
				return strings.Contains(c.Message, "no metrics from "+silent)
			}
		}
		return false
	})
	// One more decision, after all this.
	scaler.Spec.MaxReplicas++
	if err := w.gateway.Patch(w.Context(), scaler, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"maxReplicas":%d}}`, scaler.Spec.MaxReplicas))); err != nil {
		w.Fatal(err)
	}
	generation := scaler.Generation
	until(w, "it decides again", w.gateway, scaler, func(a *autoscalingv1alpha1.FederatedHPA) bool {
		return ptr.Deref(a.Status.ObservedGeneration, 0) >= generation
	})
	if d := until(w, "the workload exists", w.gateway, deployment(name), func(*appsv1.Deployment) bool { return true }); *d.Spec.Replicas != replicas {
		w.Errorf("%s has %d replicas while %s is silent, want %d", name, *d.Spec.Replicas, silent, replicas)
	}
}
