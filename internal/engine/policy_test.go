package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// event waits for an event about an object.
func event(t *testing.T, client ctrlclient.Client, ns, name, reason string) *corev1.Event {
	t.Helper()
	var found *corev1.Event
	testenv.Eventually(t, fmt.Sprintf("there is an event %s about %s", reason, name), func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		if err := client.List(ctx, &list, ctrlclient.InNamespace(ns)); err != nil {
			return false, err
		}
		i := slices.IndexFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.Name == name })
		if i < 0 {
			return false, nil
		}
		found = &list.Items[i]
		return true, nil
	})
	return found
}

func missing(t *testing.T, what string, client ctrlclient.Client, obj ctrlclient.Object) {
	t.Helper()
	if err := client.Get(t.Context(), ctrlclient.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// delivered waits until a ConfigMap with some data is in a member.
func delivered(t *testing.T, member, ns, name, key, value string) *corev1.ConfigMap {
	t.Helper()
	return until(t, fmt.Sprintf("%s=%s is in %s", key, value, member), members[member], configMapRef(ns, name), func(cm *corev1.ConfigMap) bool { return cm.Data[key] == value })
}

// barrier returns when the engine has reconciled everything that was written before: it waits for another template.
func barrier(t *testing.T, ns string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "barrier-"}}
	create(t, secret)
	p := policy(ns, secret.Name, []string{"Secret"}, inMembers("member1"))
	p.Spec.ResourceSelectors[0].Name = secret.Name
	create(t, p)
	until(t, "the engine has caught up", members["member1"], &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: secret.Name}}, anything[*corev1.Secret])
}

// P1, P2: a policy that is created after its template selects it, and selects in no other namespace.
func TestPolicyAfterTemplate(t *testing.T) {
	t.Parallel()
	ns, other := namespace(t), namespace(t)
	create(t, configMap(ns, "early", map[string]string{"k": "v"}), configMap(other, "early", map[string]string{"k": "v"}))
	create(t, policy(ns, "late", []string{"ConfigMap"}, inMembers("member1")))
	delivered(t, "member1", ns, "early", "k", "v")
	missing(t, "a ConfigMap of another namespace", members["member1"], configMapRef(other, "early"))
	missing(t, "its binding", cell, bindingRef(other, "early-configmap"))
}

// P1, P3: a ClusterPropagationPolicy selects by label across namespaces; claims are on the template and its binding.
func TestClusterPolicyClaims(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	cpp := &policyv1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cpp.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": ns}}}}
	inMembers("member1")(&cpp.Spec)
	create(t, cpp)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), cpp) })
	mine := configMap(ns, "mine", map[string]string{"k": "v"})
	mine.Labels = map[string]string{"team": ns}
	claimed := configMap(ns, "claimed", map[string]string{"k": "v"})
	claimed.Labels = map[string]string{"team": ns, names.ClaimedByLabel: "MultiClusterService"}
	create(t, claimed, mine)
	delivered(t, "member1", ns, "mine", "k", "v")
	got := until(t, "it is there", cell, configMapRef(ns, "mine"), anything[*corev1.ConfigMap])
	if got.Labels[names.ClusterPropagationPolicyPermanentIDLabel] == "" || got.Annotations[names.ClusterPropagationPolicyNameAnnotation] != ns {
		t.Errorf("the template is not claimed: %v %v", got.Labels, got.Annotations)
	}
	binding := until(t, "it is there", cell, bindingRef(ns, "mine-configmap"), anything[*workv1alpha2.ResourceBinding])
	if binding.Labels[names.ClusterPropagationPolicyPermanentIDLabel] != got.Labels[names.ClusterPropagationPolicyPermanentIDLabel] || binding.Annotations[names.ClusterPropagationPolicyNameAnnotation] != ns {
		t.Errorf("the binding is not claimed: %v %v", binding.Labels, binding.Annotations)
	}
	missing(t, "a binding of a template that another controller propagates", cell, bindingRef(ns, "claimed-configmap"))

	// A policy of the namespace takes precedence for new templates, not for claimed ones.
	create(t, policy(ns, "own", []string{"ConfigMap"}, inMembers("member2")))
	next := configMap(ns, "next", map[string]string{"k": "v"})
	next.Labels = map[string]string{"team": ns}
	create(t, next)
	delivered(t, "member2", ns, "next", "k", "v")
	missing(t, "a claimed template in member2", members["member2"], configMapRef(ns, "mine"))
}

// P4: deleting a policy removes the claims and leaves everything else; a new policy takes over.
func TestPolicyDeletion(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := policy(ns, "first", []string{"ConfigMap"}, inMembers("member1"))
	create(t, p, configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	if err := cell.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	until(t, "the template is unclaimed", cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) bool {
		return cm.Labels[names.PropagationPolicyPermanentIDLabel] == "" && cm.Annotations[names.PropagationPolicyNameAnnotation] == "" && cm.Annotations[names.PropagationPolicyNamespaceAnnotation] == ""
	})
	binding := until(t, "the binding is unclaimed", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return b.Labels[names.PropagationPolicyPermanentIDLabel] == ""
	})
	if binding.Spec.Placement == nil || len(binding.Spec.Clusters) != 1 {
		t.Errorf("the binding lost its placement: %+v", binding.Spec)
	}
	// Changes of the template are still propagated.
	edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member1", ns, "cm", "k", "2")

	create(t, policy(ns, "second", []string{"ConfigMap"}, inMembers("member2")))
	delivered(t, "member2", ns, "cm", "k", "2")
	untilGone(t, "it has moved", members["member1"], configMapRef(ns, "cm"))
}

// P5, B1: a template that is no longer selected is unclaimed; a changed placement moves the template and deletes the
// old Work.
func TestPolicyEdit(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := policy(ns, "p", []string{"ConfigMap", "Secret"}, inMembers("member1"))
	create(t, p, configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
	delivered(t, "member2", ns, "cm", "k", "1")
	untilGone(t, "the old copy is gone", members["member1"], configMapRef(ns, "cm"))
	untilGone(t, "the old Work is gone", cell, workRef("member1", "ConfigMap", ns, "cm"))

	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{selectKind("Secret")}
	})
	until(t, "it is unclaimed", cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) bool { return cm.Labels[names.PropagationPolicyPermanentIDLabel] == "" })
	delivered(t, "member2", ns, "cm", "k", "1")
}

// P7: a lazy policy is recorded, and takes effect with the next change of the template.
func TestLazyActivation(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	lazy := func(spec *policyv1alpha1.PropagationSpec) { spec.ActivationPreference = policyv1alpha1.LazyActivation }
	old := configMap(ns, "old", map[string]string{"k": "1"})
	create(t, old)
	p := policy(ns, "lazy", []string{"ConfigMap"}, inMembers("member1"), lazy)
	// Objects that are created in the same second count as created together.
	testenv.Eventually(t, "the next second has begun", func(context.Context) (bool, error) { return time.Now().Unix() > old.CreationTimestamp.Unix(), nil })
	create(t, p)
	until(t, "it is claimed", cell, configMapRef(ns, "old"), func(cm *corev1.ConfigMap) bool { return cm.Labels[names.PropagationPolicyPermanentIDLabel] != "" })
	barrier(t, ns)
	missing(t, "a binding of an existing template", cell, bindingRef(ns, "old-configmap"))
	edit(t, cell, configMapRef(ns, "old"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member1", ns, "old", "k", "2")

	create(t, configMap(ns, "new", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "new", "k", "1")
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
	barrier(t, ns)
	missing(t, "the change of the policy", members["member2"], configMapRef(ns, "new"))
	edit(t, cell, configMapRef(ns, "new"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member2", ns, "new", "k", "2")

	// A policy that selects more after an edit waits as well, though it is older than the template.
	create(t, serviceAccount(ns, "later"))
	barrier(t, ns)
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.ResourceSelectors = append(p.Spec.ResourceSelectors, policyv1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ServiceAccount", Name: "later"})
	})
	until(t, "it is claimed", cell, serviceAccount(ns, "later"), func(a *corev1.ServiceAccount) bool { return a.Labels[names.PropagationPolicyPermanentIDLabel] != "" })
	barrier(t, ns)
	missing(t, "a binding of a newly selected template", cell, bindingRef(ns, "later-serviceaccount"))
	edit(t, cell, serviceAccount(ns, "later"), func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = ptr.To(false) })
	until(t, "it is there", members["member2"], serviceAccount(ns, "later"), anything[*corev1.ServiceAccount])
}

func serviceAccount(ns, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// P8: suspended dispatching stops updates, but not deletions.
func TestSuspendDispatching(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := policy(ns, "p", []string{"ConfigMap"})
	create(t, p, configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	delivered(t, "member2", ns, "cm", "k", "1")
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Suspension = &policyv1alpha1.Suspension{DispatchingOnClusters: &policyv1alpha1.SuspendClusters{ClusterNames: []string{"member1"}}}
	})
	until(t, "the Work reports it", cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
		return ptr.Deref(w.Spec.SuspendDispatching, false) && meta.IsStatusConditionFalse(w.Status.Conditions, names.WorkDispatching)
	})
	work := workRef("member1", "ConfigMap", ns, "cm")
	if e := event(t, cell, work.Namespace, work.Name, names.EventWorkDispatching); !strings.Contains(e.Message, "suspended") || e.Type != corev1.EventTypeNormal {
		t.Errorf("event %s: %s", e.Type, e.Message)
	}
	edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member2", ns, "cm", "k", "2")
	delivered(t, "member1", ns, "cm", "k", "1")
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Suspension = nil })
	delivered(t, "member1", ns, "cm", "k", "2")
	until(t, "the Work is dispatched again", cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
		return meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkDispatching)
	})

	// The template says so itself. The annotation stays in the federation.
	edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) {
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, names.SuspendDispatchingAnnotation, "true")
		cm.Data["k"] = "3"
	})
	until(t, "the Work has the change and is suspended", cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
		return ptr.Deref(w.Spec.SuspendDispatching, false) && len(w.Spec.Workload.Manifests) == 1 && strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), `"k":"3"`) &&
			meta.IsStatusConditionFalse(w.Status.Conditions, names.WorkDispatching)
	})
	delivered(t, "member1", ns, "cm", "k", "2")
	edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { delete(cm.Annotations, names.SuspendDispatchingAnnotation) })
	delivered(t, "member1", ns, "cm", "k", "3")

	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Suspension = &policyv1alpha1.Suspension{Dispatching: ptr.To(true)}
	})
	until(t, "both Works are suspended", cell, workRef("member2", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool { return ptr.Deref(w.Spec.SuspendDispatching, false) })
	if err := cell.Delete(t.Context(), configMapRef(ns, "cm")); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "it is deleted nevertheless", members["member1"], configMapRef(ns, "cm"))
}

// P9, P14: a binding whose scheduling is suspended, or that belongs to another scheduler, is not scheduled.
func TestSchedulingByOthers(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := policy(ns, "p", []string{"ConfigMap"}, inMembers("member1"))
	create(t, p, configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	edit(t, cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) {
		b.Spec.Suspension = &workv1alpha2.Suspension{Scheduling: ptr.To(true)}
	})
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
	noted := func(b *workv1alpha2.ResourceBinding) bool {
		return b.Spec.Placement.ClusterAffinity.ClusterNames[0] == "member2" && b.Spec.Suspension != nil
	}
	for _, when := range []string{"the new placement is noted", "it still is, after others have been decided about"} {
		binding := until(t, when, cell, bindingRef(ns, "cm-configmap"), noted)
		if len(binding.Spec.Clusters) != 1 || binding.Spec.Clusters[0].Name != "member1" {
			t.Errorf("%s, but the binding was scheduled to %v", when, binding.Spec.Clusters)
		}
		barrier(t, ns)
	}
	missing(t, "a copy before a decision", members["member2"], configMapRef(ns, "cm"))
	edit(t, cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) { b.Spec.Suspension = nil })
	delivered(t, "member2", ns, "cm", "k", "1")

	create(t, policy(ns, "theirs", []string{"Secret"}, func(spec *policyv1alpha1.PropagationSpec) { spec.SchedulerName = "theirs" }))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}}
	create(t, secret)
	binding := until(t, "it has a binding", cell, bindingRef(ns, "s-secret"), anything[*workv1alpha2.ResourceBinding])
	barrier2 := configMap(ns, "after", map[string]string{"k": "1"})
	create(t, barrier2)
	delivered(t, "member2", ns, "after", "k", "1")
	binding = until(t, "it still has it", cell, binding, anything[*workv1alpha2.ResourceBinding])
	if len(binding.Spec.Clusters) != 0 || meta.FindStatusCondition(binding.Status.Conditions, names.BindingScheduled) != nil {
		t.Errorf("somebody else's binding was scheduled: %+v", binding)
	}
	edit(t, cell, binding, func(b *workv1alpha2.ResourceBinding) {
		b.Spec.Clusters = []workv1alpha2.TargetCluster{{Name: "nowhere"}, {Name: "member1"}}
	})
	event(t, cell, ns, "s-secret", names.EventClusterNotFound)
	until(t, "the decision of the other scheduler is applied", members["member1"], &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}}, anything[*corev1.Secret])
}

// P10: conflictResolution of the template overrides that of the policy.
func TestTemplateDecidesAboutConflicts(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	createIn(t, members["member1"], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, configMap(ns, "cm", map[string]string{"k": "member"}))
	cm := configMap(ns, "cm", map[string]string{"k": "federation"})
	cm.Annotations = map[string]string{names.ConflictResolutionAnnotation: "overwrite"}
	create(t, cm, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")))
	delivered(t, "member1", ns, "cm", "k", "federation")
}

// P11: preserved objects stay, without our labels and annotations.
func TestPreserveOnDeletion(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1"), func(spec *policyv1alpha1.PropagationSpec) { spec.PreserveResourcesOnDeletion = ptr.To(true) }))
	cm := configMap(ns, "cm", map[string]string{"k": "1"})
	cm.Labels, cm.Annotations = map[string]string{"mine": "yes"}, map[string]string{"mine": "yes"}
	create(t, cm)
	delivered(t, "member1", ns, "cm", "k", "1")
	if err := cell.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "the Work is gone", cell, workRef("member1", "ConfigMap", ns, "cm"))
	got := delivered(t, "member1", ns, "cm", "k", "1")
	for _, entries := range []map[string]string{got.Labels, got.Annotations} {
		for key := range entries {
			if strings.Contains(key, "karmada.io/") || strings.Contains(key, "cellplane.io/") {
				t.Errorf("%s is left", key)
			}
		}
	}
	if got.Labels["mine"] != "yes" || got.Annotations["mine"] != "yes" {
		t.Errorf("labels are %v, annotations %v", got.Labels, got.Annotations)
	}
}

// P28: a workload that runs in a member is taken over without a restart, and released as it was.
func TestMigrationAndRollback(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	member := members["member1"]
	legacy := deployment(ns, "legacy", 1)
	legacy.Annotations = map[string]string{"team": "a"} // not in the template
	createIn(t, member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, legacy)
	running := until(t, "it is running", member, deploymentRef(ns, "legacy"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 1 })
	var before corev1.PodList
	if err := member.List(t.Context(), &before, ctrlclient.InNamespace(ns)); err != nil || len(before.Items) != 1 {
		t.Fatalf("%d pods: %v", len(before.Items), err)
	}

	create(t, policy(ns, "migrate", []string{"Deployment"}, inMembers("member1"), func(spec *policyv1alpha1.PropagationSpec) {
		spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
		spec.PreserveResourcesOnDeletion = ptr.To(true)
	}), deployment(ns, "legacy", 1))
	until(t, "the federation has taken it over", member, deploymentRef(ns, "legacy"), func(d *appsv1.Deployment) bool { return d.Labels[names.ManagedLabel] == "true" })
	until(t, "its status is reported", cell, deploymentRef(ns, "legacy"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 1 })

	if err := cell.Delete(t.Context(), deploymentRef(ns, "legacy")); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "its Work is deleted", cell, workRef("member1", "Deployment", ns, "legacy"))
	back := until(t, "it is released", member, deploymentRef(ns, "legacy"), func(d *appsv1.Deployment) bool { return d.Labels[names.ManagedLabel] == "" })
	if back.UID != running.UID || back.Annotations["team"] != "a" {
		t.Errorf("it was %s and is %s, with annotations %v", running.UID, back.UID, back.Annotations)
	}
	var after corev1.PodList
	if err := member.List(t.Context(), &after, ctrlclient.InNamespace(ns)); err != nil || len(after.Items) != 1 || after.Items[0].UID != before.Items[0].UID {
		t.Errorf("the pods were recreated: %v", err)
	}
}

// P13, P13a: a policy waits for its priority class and its override policies.
func TestPolicyWaits(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "prio", []string{"ConfigMap"}, inMembers("member1"), func(spec *policyv1alpha1.PropagationSpec) {
		spec.SchedulePriority = &policyv1alpha1.SchedulePriority{PriorityClassSource: policyv1alpha1.KubePriorityClass, PriorityClassName: ns}
	}))
	create(t, configMap(ns, "cm", map[string]string{"k": "1"}))
	if e := event(t, cell, ns, "cm", names.EventApplyPolicyFailed); !strings.Contains(e.Message, ns) {
		t.Errorf("the event does not name the class: %s", e.Message)
	}
	missing(t, "a binding", cell, bindingRef(ns, "cm-configmap"))
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Value: 7}
	create(t, class)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), class) })
	until(t, "it has its priority", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return b.Spec.SchedulePriority != nil && b.Spec.SchedulePriority.Priority == 7
	})

	create(t, policy(ns, "over", []string{"Secret"}, inMembers("member1"), func(spec *policyv1alpha1.PropagationSpec) { spec.DependentOverrides = []string{"later"} }))
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}})
	event(t, cell, ns, "s", names.EventApplyPolicyFailed)
	missing(t, "a binding", cell, bindingRef(ns, "s-secret"))
	create(t, labelOverride(ns, "later", "Secret", "s", "x"))
	until(t, "it is there, overridden", members["member1"], &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}}, func(s *corev1.Secret) bool { return s.Labels["over"] == "x" })
}

func labelOverride(ns, name, kind, target, value string) *policyv1alpha1.OverridePolicy {
	op := &policyv1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	selector := selectKind(kind)
	selector.Name = target
	op.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{selector}
	op.Spec.OverrideRules = []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{
		LabelsOverrider: []policyv1alpha1.LabelAnnotationOverrider{{Operator: policyv1alpha1.OverriderOpAdd, Value: map[string]string{"over": value}}},
	}}}
	return op
}

// O8, O9: override policies take effect when they are created, changed and deleted, and are recorded on the Work.
func TestOverridesTakeEffect(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")), configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	hasLabel := func(value string) {
		t.Helper()
		until(t, "the label is "+value, members["member1"], configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) bool { return cm.Labels["over"] == value })
	}
	op := labelOverride(ns, "op", "ConfigMap", "cm", "1")
	create(t, op)
	hasLabel("1")
	until(t, "the Work records the override", cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
		return strings.Contains(w.Annotations[names.AppliedOverridesAnnotation], `"policyName":"op"`)
	})
	event(t, cell, ns, "cm", names.EventApplyOverridePolicySucceed)
	edit(t, cell, op, func(op *policyv1alpha1.OverridePolicy) {
		op.Spec.OverrideRules[0].Overriders.LabelsOverrider[0].Value = map[string]string{"over": "2"}
	})
	hasLabel("2")
	if err := cell.Delete(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	hasLabel("")
	until(t, "the record is removed", cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
		return w.Annotations[names.AppliedOverridesAnnotation] == ""
	})
}

// P18, P19, P21: names, labels, annotations, finalizers and owners are those that users and tools know.
func TestMarks(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"Deployment"}, inMembers("member1")), deployment(ns, "web", 1))
	copied := until(t, "it is there", members["member1"], deploymentRef(ns, "web"), anything[*appsv1.Deployment])
	template := until(t, "it is there", cell, deploymentRef(ns, "web"), anything[*appsv1.Deployment])
	binding := until(t, "it is there", cell, bindingRef(ns, "web-deployment"), anything[*workv1alpha2.ResourceBinding])
	work := until(t, "it is there", cell, workRef("member1", "Deployment", ns, "web"), anything[*workv1alpha1.Work])

	if owner := metav1.GetControllerOf(binding); owner == nil || owner.UID != template.UID || owner.Kind != "Deployment" {
		t.Errorf("the binding's controller is %+v", owner)
	}
	if !slices.Contains(binding.Finalizers, names.BindingFinalizer) || !slices.Contains(work.Finalizers, names.ExecutionFinalizer) {
		t.Errorf("finalizers are %v and %v", binding.Finalizers, work.Finalizers)
	}
	bindingID, workID := binding.Labels[names.ResourceBindingPermanentIDLabel], work.Labels[names.WorkPermanentIDLabel]
	want := map[string]string{
		"binding ID on the Work":           work.Labels[names.ResourceBindingPermanentIDLabel],
		"binding ID in the member":         copied.Labels[names.ResourceBindingPermanentIDLabel],
		"Work ID in the member":            copied.Labels[names.WorkPermanentIDLabel],
		"binding's name on the Work":       work.Annotations[names.ResourceBindingNameAnnotation],
		"binding's namespace on the Work":  work.Annotations[names.ResourceBindingNamespaceAnnotation],
		"binding's name in the member":     copied.Annotations[names.ResourceBindingNameAnnotation],
		"Work's name in the member":        copied.Annotations[names.WorkNameAnnotation],
		"Work's namespace in the member":   copied.Annotations[names.WorkNamespaceAnnotation],
		"template's UID in the member":     copied.Annotations[names.TemplateUIDAnnotation],
		"template's generation":            copied.Annotations[names.TemplateGenerationAnnotation],
		"conflict resolution":              copied.Annotations[names.ConflictResolutionAnnotation],
		"slot on the Work":                 work.Labels[names.SlotLabel],
		"managed labels in the member":     fmt.Sprint(strings.Contains(copied.Annotations[names.ManagedLabelsAnnotation], "app")),
		"placement applied to the binding": fmt.Sprint(binding.Annotations[names.AppliedPlacementAnnotation] != ""),
	}
	for what, expected := range map[string]string{
		"binding ID on the Work": bindingID, "binding ID in the member": bindingID, "Work ID in the member": workID,
		"binding's name on the Work": "web-deployment", "binding's namespace on the Work": ns, "binding's name in the member": "web-deployment",
		"Work's name in the member": work.Name, "Work's namespace in the member": "karmada-es-member1",
		"template's UID in the member": string(template.UID), "template's generation": fmt.Sprint(template.Generation),
		"conflict resolution": "abort", "slot on the Work": slots.Of(ns, "web").String(),
		"managed labels in the member": "true", "placement applied to the binding": "true",
	} {
		if want[what] != expected || expected == "" {
			t.Errorf("%s is %q, want %q", what, want[what], expected)
		}
	}
}

// P20: fields that the cell's API server sets are not propagated.
func TestServiceGetsItsOwnAddress(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"Service"}, inMembers("member1")),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "svc", Finalizers: []string{"example.com/stay"}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	ref := func() *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "svc"}}
	}
	got := until(t, "it is there", members["member1"], ref(), anything[*corev1.Service])
	template := until(t, "it is there", cell, ref(), anything[*corev1.Service])
	if got.Spec.ClusterIP == template.Spec.ClusterIP || got.Spec.ClusterIP == "" || len(got.Finalizers) != 0 || len(got.OwnerReferences) != 0 {
		t.Errorf("the member's Service is %+v", got)
	}
	edit(t, cell, template, func(s *corev1.Service) { s.Finalizers = nil; s.Spec.Ports[0].Port = 81 })
	after := until(t, "it is updated", members["member1"], ref(), func(s *corev1.Service) bool { return s.Spec.Ports[0].Port == 81 })
	if after.Spec.ClusterIP != got.Spec.ClusterIP {
		t.Errorf("the member's address changed from %s to %s", got.Spec.ClusterIP, after.Spec.ClusterIP)
	}
}

// S6, S7, P25: replicas and completions are divided by static weights.
func TestStaticWeights(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	weights := func(spec *policyv1alpha1.PropagationSpec) {
		spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
			ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
			WeightPreference: &policyv1alpha1.ClusterPreferences{StaticWeightList: []policyv1alpha1.StaticClusterWeight{
				{TargetCluster: policyv1alpha1.ClusterAffinity{ClusterNames: []string{"member1"}}, Weight: 2},
				{TargetCluster: policyv1alpha1.ClusterAffinity{ClusterNames: []string{"member2"}}, Weight: 1},
			}},
		}
	}
	create(t, policy(ns, "p", []string{"Deployment", "Job"}, weights), deployment(ns, "web", 6))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sum"}, Spec: batchv1.JobSpec{
		Parallelism: ptr.To(int32(3)), Completions: ptr.To(int32(9)),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "registry.example/job:1"}}}},
	}}
	create(t, job)
	for member, share := range map[string]int32{"member1": 2, "member2": 1} {
		until(t, "the replicas are divided", members[member], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2*share })
		until(t, "the Job is divided", members[member], &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sum"}}, func(j *batchv1.Job) bool {
			return *j.Spec.Parallelism == share && *j.Spec.Completions == 3*share
		})
	}
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(9)) })
	until(t, "the new replicas are divided", members["member1"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 6 })
}

// P26: replicas that the member owns are retained.
func TestRetainReplicas(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	d := deployment(ns, "web", 1)
	d.Labels[names.RetainReplicasLabel] = "true"
	create(t, policy(ns, "p", []string{"Deployment"}, inMembers("member1")), d)
	until(t, "it is there", members["member1"], deploymentRef(ns, "web"), anything[*appsv1.Deployment])
	edit(t, members["member1"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(4)) })
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2" })
	got := until(t, "the image is updated", members["member1"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
	})
	if *got.Spec.Replicas != 4 {
		t.Errorf("replicas are %d", *got.Spec.Replicas)
	}
}

// S23: a placement that no cluster fits is reported on the binding, and retried when clusters change.
func TestNoClusterFits(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("nowhere")), configMap(ns, "cm", nil))
	until(t, "the binding has the reason", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		scheduled := meta.FindStatusCondition(b.Status.Conditions, names.BindingScheduled)
		return scheduled != nil && scheduled.Status == metav1.ConditionFalse && scheduled.Reason == names.ReasonNoClusterFit && strings.Contains(scheduled.Message, "2 cluster(s)")
	})
	event(t, cell, ns, "cm-configmap", names.EventScheduleBindingFailed)
}
