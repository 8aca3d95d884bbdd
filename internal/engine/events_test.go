package engine_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// B9, I1: a script that fails says so where its answer is missed, each operation with the reason that users know; the rest goes on as
// far as it can, and takes up again when the script is mended.
func TestScriptsThatFail(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const failing = "error('not today')"
	custom := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	custom.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
	custom.Spec.Customizations.ReplicaResource = &configv1alpha1.ReplicaResourceRequirement{LuaScript: "function GetReplicas(obj) " + failing + " end"}
	create(t, custom)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), custom) })
	create(t, policy(ns, "p", nil, inMembers("member1"), withDependencies, func(spec *policyv1alpha1.PropagationSpec) {
		spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}}
	}))
	rules := func(rules configv1alpha1.CustomizationRules) {
		t.Helper()
		edit(t, cell, custom, func(c *configv1alpha1.ResourceInterpreterCustomization) { c.Spec.Customizations = rules })
	}
	np := func() *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "np"}}
	}
	work := names.WorkName("NetworkPolicy", ns, "np")

	create(t, np())
	event(t, cell, ns, "np", names.EventGetReplicasFailed)
	rules(configv1alpha1.CustomizationRules{ComponentResource: &configv1alpha1.ComponentResourceRequirement{LuaScript: "function GetComponents(obj) " + failing + " end"}})
	event(t, cell, ns, "np", names.EventGetComponentsFailed)
	missing(t, "a binding of what is not understood", cell, bindingRef(ns, "np-networkpolicy"))

	rules(configv1alpha1.CustomizationRules{
		StatusReflection:         &configv1alpha1.StatusReflection{LuaScript: "function ReflectStatus(obj) " + failing + " end"},
		HealthInterpretation:     &configv1alpha1.HealthInterpretation{LuaScript: "function InterpretHealth(obj) " + failing + " end"},
		StatusAggregation:        &configv1alpha1.StatusAggregation{LuaScript: "function AggregateStatus(obj, items) " + failing + " end"},
		DependencyInterpretation: &configv1alpha1.DependencyInterpretation{LuaScript: "function GetDependencies(obj) " + failing + " end"},
	})
	until(t, "it is in the member all the same", members["member1"], np(), anything[*networkingv1.NetworkPolicy])
	event(t, cell, names.ExecutionNamespace("member1"), work, names.EventReflectStatusFailed)
	event(t, cell, names.ExecutionNamespace("member1"), work, names.EventInterpretHealthFailed)
	event(t, cell, ns, "np", names.EventAggregateStatusFailed)
	event(t, cell, ns, "np-networkpolicy", names.EventGetDependenciesFailed)
	until(t, "its health is not known", cell, bindingRef(ns, "np-networkpolicy"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Health == workv1alpha2.ResourceUnknown
	})

	rules(configv1alpha1.CustomizationRules{
		HealthInterpretation:     &configv1alpha1.HealthInterpretation{LuaScript: "function InterpretHealth(obj) return true end"},
		StatusAggregation:        &configv1alpha1.StatusAggregation{LuaScript: "function AggregateStatus(obj, items) return obj end"},
		DependencyInterpretation: &configv1alpha1.DependencyInterpretation{LuaScript: "function GetDependencies(obj) return {} end"},
	})
	event(t, cell, ns, "np", names.EventAggregateStatusSucceed)
	event(t, cell, ns, "np-networkpolicy", names.EventSyncScheduleResultToDependenciesSucceed)
	until(t, "it is healthy", cell, bindingRef(ns, "np-networkpolicy"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Health == workv1alpha2.ResourceHealthy
	})
	if of := event(t, cell, ns, "np", names.EventGetReplicasFailed); of.Type != corev1.EventTypeWarning {
		t.Errorf("a failure is told as %s", of.Type)
	}
}
