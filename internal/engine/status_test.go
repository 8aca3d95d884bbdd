package engine_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// B8: the status of a load balancer has the addresses of all members.
func TestLoadBalancerStatus(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	ref := func() *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lb"}}
	}
	svc := ref()
	svc.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}
	create(t, policy(ns, "p", []string{"Service"}), svc)
	for name, ip := range map[string]string{"member1": "192.0.2.1", "member2": "192.0.2.2"} {
		until(t, "it is there", members[name], ref(), anything[*corev1.Service])
		testenv.Eventually(t, "the load balancer has an address", func(ctx context.Context) (bool, error) {
			svc := ref()
			if err := members[name].Get(ctx, ctrlclient.ObjectKeyFromObject(svc), svc); err != nil {
				return false, err
			}
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
			err := members[name].Status().Update(ctx, svc)
			return err == nil, err
		})
	}
	until(t, "the template has both", cell, ref(), func(s *corev1.Service) bool {
		ingress := s.Status.LoadBalancer.Ingress
		return len(ingress) == 2 && ingress[0].IP == "192.0.2.1" && ingress[1].IP == "192.0.2.2"
	})
}

// B3: the conditions of a Work reflect its objects.
func TestWorkConditions(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"Deployment"}, inMembers("member1")), deployment(ns, "web", 1))
	expect := func(what string, want map[string]metav1.ConditionStatus) {
		t.Helper()
		until(t, what, cell, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
			for kind, status := range want {
				if !meta.IsStatusConditionPresentAndEqual(w.Status.Conditions, kind, status) {
					return false
				}
			}
			return true
		})
	}
	expect("it is at rest", map[string]metav1.ConditionStatus{
		names.WorkApplied: metav1.ConditionTrue, names.WorkDispatching: metav1.ConditionTrue, names.WorkAvailable: metav1.ConditionTrue,
		names.WorkProgressing: metav1.ConditionFalse, names.WorkDegraded: metav1.ConditionFalse,
	})
	// The selector of a Deployment cannot be changed: the member refuses it.
	broken := &policyv1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "broken"}}
	broken.Spec.OverrideRules = []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{Plaintext: []policyv1alpha1.PlaintextOverrider{
		{Path: "/spec/selector/matchLabels/app", Operator: policyv1alpha1.OverriderOpReplace, Value: apiextensionsv1.JSON{Raw: []byte(`"other"`)}},
	}}}}
	create(t, broken)
	expect("it is refused", map[string]metav1.ConditionStatus{
		names.WorkApplied: metav1.ConditionFalse, names.WorkAvailable: metav1.ConditionTrue, names.WorkDegraded: metav1.ConditionTrue,
	})
}

// B9: events report the steps of a success once, failures, and recovery.
func TestEvents(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	createIn(t, members["member1"], namespaceRef(ns), configMap(ns, "cm", nil))
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")), configMap(ns, "cm", nil))
	event(t, cell, ns, "cm", names.EventApplyPolicySucceed)
	event(t, cell, ns, "cm-configmap", names.EventScheduleBindingSucceed)
	event(t, cell, ns, "cm-configmap", names.EventSyncFailed)
	event(t, cell, "karmada-es-member1", names.WorkName("ConfigMap", ns, "cm"), names.EventSyncFailed)
	if err := members["member1"].Delete(t.Context(), configMapRef(ns, "cm")); err != nil {
		t.Fatal(err)
	}
	event(t, cell, ns, "cm-configmap", names.EventSyncSucceed)
	event(t, cell, "karmada-es-member1", names.WorkName("ConfigMap", ns, "cm"), names.EventSyncSucceed)
}

// C1: Works of a cluster in pull mode are left to its agent; the status that the agent reports is aggregated.
func TestPulledWorks(t *testing.T) {
	ns := namespace(t)
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "puller"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull}}
	create(t, cluster)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), cluster) })
	create(t, policy(ns, "p", []string{"Deployment"}, inMembers("puller")), deployment(ns, "web", 1))
	work := until(t, "it has a Work", cell, workRef("puller", "Deployment", ns, "web"), anything[*workv1alpha1.Work])
	barrier(t, ns)
	if work = until(t, "it is there", cell, work, anything[*workv1alpha1.Work]); len(work.Status.Conditions) != 0 {
		t.Errorf("the engine wrote the status of a Work that is not its own: %+v", work.Status)
	}
	work.Status.Conditions = []metav1.Condition{{Type: names.WorkApplied, Status: metav1.ConditionTrue, Reason: "AppliedSuccessful", LastTransitionTime: metav1.Now()}}
	work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{
		Identifier: workv1alpha1.ResourceIdentifier{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: ns, Name: "web"},
		Status:     &runtime.RawExtension{Raw: []byte(`{"replicas":1,"readyReplicas":1,"updatedReplicas":1,"availableReplicas":1}`)}, Health: workv1alpha1.ResourceHealthy,
	}}
	if err := cell.Status().Update(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	until(t, "the binding has the status", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Applied && b.Status.AggregatedStatus[0].Health == workv1alpha2.ResourceHealthy
	})
	until(t, "the template has the status", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 1 })
	if err := cell.Delete(t.Context(), deploymentRef(ns, "web")); err != nil {
		t.Fatal(err)
	}
	until(t, "the Work waits for the agent", cell, work, func(w *workv1alpha1.Work) bool { return w.DeletionTimestamp != nil })
	edit(t, cell, work, func(w *workv1alpha1.Work) { w.Finalizers = nil })
	untilGone(t, "the binding is gone", cell, bindingRef(ns, "web-deployment"))
}
