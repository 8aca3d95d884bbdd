package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

func namespaceRef(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// P15, O10: namespaces of the hub are created in every member, with the overrides for the cluster, and deleted with the
// hub's.
func TestNamespacesTravel(t *testing.T) {
	t.Parallel()
	cop := &policyv1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "ns-" + strings.ToLower(t.Name())}}
	cop.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Namespace", Name: "hub-travels"}}
	cop.Spec.OverrideRules = []policyv1alpha1.RuleWithCluster{{
		TargetCluster: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"member1"}},
		Overriders: policyv1alpha1.Overriders{
			LabelsOverrider: []policyv1alpha1.LabelAnnotationOverrider{{Operator: policyv1alpha1.OverriderOpAdd, Value: map[string]string{"site": "one"}}},
		},
	}}
	ns := namespaceRef("hub-travels")
	ns.Labels = map[string]string{"team": "a"}
	skipped := namespaceRef("hub-stays")
	skipped.Labels = map[string]string{names.SkipAutoPropagationLabel: "true"}
	createIn(t, members["member2"], namespaceRef("hub-was-there"))
	createIn(t, hub, cop, skipped, namespaceRef("kube-special"), namespaceRef("hub-was-there"), ns)

	got := until(t, "it is in member1, overridden", members["member1"], namespaceRef("hub-travels"), func(ns *corev1.Namespace) bool { return ns.Labels["site"] == "one" })
	if got.Labels["team"] != "a" || got.Labels[names.ManagedLabel] != "true" {
		t.Errorf("labels are %v", got.Labels)
	}
	if got := until(t, "it is in member2", members["member2"], namespaceRef("hub-travels"), anything[*corev1.Namespace]); got.Labels["site"] != "" {
		t.Errorf("member2 got the override for member1: %v", got.Labels)
	}
	work := until(t, "its Work records the override", hub, workRef("member1", "Namespace", "", "hub-travels"), anything[*workv1alpha1.Work])
	if !strings.Contains(work.Annotations[names.AppliedClusterOverridesAnnotation], cop.Name) {
		t.Errorf("annotations are %v", work.Annotations)
	}
	missing(t, "a skipped namespace", members["member1"], namespaceRef("hub-stays"))
	missing(t, "a namespace of Kubernetes", members["member1"], namespaceRef("kube-special"))
	missing(t, "a Work of a reserved namespace", hub, workRef("member1", "Namespace", "", names.SystemNamespace))
	until(t, "an existing namespace counts as applied", hub, workRef("member2", "Namespace", "", "hub-was-there"), func(w *workv1alpha1.Work) bool {
		return slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool { return c.Type == names.WorkApplied && c.Status == metav1.ConditionTrue })
	})
	if there := until(t, "it is there", members["member2"], namespaceRef("hub-was-there"), anything[*corev1.Namespace]); there.Labels[names.ManagedLabel] != "" {
		t.Error("an existing namespace was taken over")
	}

	edit(t, hub, namespaceRef("hub-travels"), func(ns *corev1.Namespace) { ns.Labels["team"] = "b" })
	until(t, "labels are updated", members["member2"], namespaceRef("hub-travels"), func(ns *corev1.Namespace) bool { return ns.Labels["team"] == "b" })
	if err := hub.Delete(t.Context(), namespaceRef("hub-travels")); err != nil {
		t.Fatal(err)
	}
	until(t, "it is being deleted", hub, namespaceRef("hub-travels"), func(ns *corev1.Namespace) bool { return ns.DeletionTimestamp != nil })
	createIn(t, hub, namespaceRef("hub-after"))
	until(t, "the engine has seen that", members["member1"], namespaceRef("hub-after"), anything[*corev1.Namespace])
	if there := until(t, "it is there", members["member1"], namespaceRef("hub-travels"), anything[*corev1.Namespace]); there.DeletionTimestamp != nil {
		t.Error("the members delete what is in it before it is gone")
	}
	terminating := until(t, "it is there", hub, namespaceRef("hub-travels"), anything[*corev1.Namespace])
	terminating.Spec.Finalizers = nil // as the namespace controller does when nothing is left in it
	if err := hub.SubResource("finalize").Update(t.Context(), terminating); err != nil {
		t.Fatal(err)
	}
	until(t, "it is deleted in the members", members["member1"], namespaceRef("hub-travels"), func(ns *corev1.Namespace) bool { return ns.DeletionTimestamp != nil })
}

// P15: a cluster that joins gets the existing namespaces.
func TestNamespacesOfANewCluster(t *testing.T) {
	t.Parallel()
	createIn(t, hub, namespaceRef("hub-was-first"))
	until(t, "the members have it", members["member1"], namespaceRef("hub-was-first"), anything[*corev1.Namespace])
	late := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull}}
	createIn(t, hub, late)
	t.Cleanup(func() { _ = hub.Delete(context.Background(), late) })
	until(t, "the new cluster has a Work for it", hub, workRef("late", "Namespace", "", "hub-was-first"), anything[*workv1alpha1.Work])
}

// P1, P18: the hub's engine propagates cluster-scoped templates through ClusterResourceBindings.
func TestClusterScopedTemplates(t *testing.T) {
	t.Parallel()
	cpp := &policyv1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "roles", Labels: map[string]string{names.ClusterPropagationPolicyPermanentIDLabel: "roles-id"}}}
	cpp.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "team:reader"}}
	inMembers("member1")(&cpp.Spec)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "team:reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
	createIn(t, hub, cpp, role)
	roleRef := func() *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "team:reader"}}
	}
	got := until(t, "it is there", members["member1"], roleRef(), anything[*rbacv1.ClusterRole])

	binding := until(t, "the binding is there", hub, &workv1alpha2.ClusterResourceBinding{ObjectMeta: metav1.ObjectMeta{Name: "team.reader-clusterrole"}}, func(b *workv1alpha2.ClusterResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Applied
	})
	if !slices.Contains(binding.Finalizers, names.ClusterResourceBindingFinalizer) ||
		binding.Labels[names.ClusterPropagationPolicyPermanentIDLabel] != cpp.Labels[names.ClusterPropagationPolicyPermanentIDLabel] ||
		got.Annotations[names.ClusterResourceBindingNameAnnotation] != binding.Name {
		t.Errorf("the binding is %+v", binding.ObjectMeta)
	}
	until(t, "the Work has the name users know", hub, &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "karmada-es-member1", Name: names.WorkName("ClusterRole", "", "team:reader")}}, anything[*workv1alpha1.Work])

	if err := hub.Delete(t.Context(), cpp); err != nil {
		t.Fatal(err)
	}
	until(t, "the claim is removed with the policy", hub, roleRef(), func(r *rbacv1.ClusterRole) bool {
		return r.Labels[names.ClusterPropagationPolicyPermanentIDLabel] == ""
	})
	if err := hub.Delete(context.Background(), roleRef()); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "the copy is gone", members["member1"], roleRef())
}
