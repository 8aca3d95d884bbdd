package engine_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

func withDependencies(spec *policyv1alpha1.PropagationSpec) { spec.PropagateDeps = true }

func mounting(d *appsv1.Deployment, configMap string) *appsv1.Deployment {
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
	}}}
	return d
}

// P12: what a template refers to is propagated with it as long as any template needs it, and so are its changes.
func TestDependenciesFollow(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "one", []string{"Deployment"}, inMembers("member1"), withDependencies))
	create(t, mounting(deployment(ns, "web", 1), "settings"))
	until(t, "it is there", members["member1"], deploymentRef(ns, "web"), anything[*appsv1.Deployment])
	parent := until(t, "the binding has the finalizer", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return strings.Contains(b.Annotations[names.ResourceBindingDependenciesAnnotation], "settings")
	})
	if !slices.Contains(parent.Finalizers, names.BindingDependenciesFinalizer) {
		t.Errorf("finalizers are %v", parent.Finalizers)
	}

	// It is found although it is created later.
	create(t, configMap(ns, "settings", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "settings", "k", "1")
	attached := until(t, "it has a binding", cell, bindingRef(ns, "settings-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.RequiredBy) == 1 })
	if r := attached.Spec.RequiredBy[0]; r.Name != parent.Name || r.Namespace != ns || len(r.Clusters) != 1 || r.Clusters[0].Name != "member1" {
		t.Errorf("required by %+v", attached.Spec.RequiredBy)
	}
	labelled := false
	for key, value := range attached.Labels {
		labelled = labelled || strings.HasPrefix(key, names.DependedByLabelPrefix) && value == parent.Labels[names.ResourceBindingPermanentIDLabel]
	}
	if !labelled {
		t.Errorf("labels are %v", attached.Labels)
	}
	edit(t, cell, configMapRef(ns, "settings"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member1", ns, "settings", "k", "2")

	// A second template needs it in another member, with Overwrite and preservation.
	second := policy(ns, "two", []string{"Deployment"}, inMembers("member2"), withDependencies, func(spec *policyv1alpha1.PropagationSpec) {
		spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
		spec.PreserveResourcesOnDeletion = ptr.To(true)
		spec.ResourceSelectors[0].Name = "web2"
	})
	create(t, second, mounting(deployment(ns, "web2", 1), "settings"))
	delivered(t, "member2", ns, "settings", "k", "2")
	until(t, "the stronger settings win", cell, bindingRef(ns, "settings-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Spec.RequiredBy) == 2 && b.Spec.ConflictResolution == policyv1alpha1.ConflictOverwrite && ptr.Deref(b.Spec.PreserveResourcesOnDeletion, false)
	})
	event(t, cell, ns, "settings-configmap", names.EventDependencyPolicyConflict)

	// The first template is deleted: the dependency is removed where only the first needed it.
	edit(t, cell, second, func(p *policyv1alpha1.PropagationPolicy) { p.Spec.PreserveResourcesOnDeletion = nil })
	until(t, "preservation is withdrawn", cell, bindingRef(ns, "settings-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return b.Spec.PreserveResourcesOnDeletion == nil })
	if err := cell.Delete(t.Context(), deploymentRef(ns, "web")); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "it is removed from member1", members["member1"], configMapRef(ns, "settings"))
	delivered(t, "member2", ns, "settings", "k", "2")
	// The second template does not mount it any more.
	edit(t, cell, deploymentRef(ns, "web2"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Volumes = nil })
	untilGone(t, "it is no longer needed", cell, bindingRef(ns, "settings-configmap"))
	untilGone(t, "it is removed from member2", members["member2"], configMapRef(ns, "settings"))
}

// P12, I3: a script may return dependencies by label; they follow the labels.
func TestDependenciesByLabel(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	custom := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	custom.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "v1", Kind: "PodTemplate"}
	custom.Spec.Customizations.DependencyInterpretation = &configv1alpha1.DependencyInterpretation{LuaScript: `
function GetDependencies(obj)
  return {{apiVersion = "v1", kind = "ConfigMap", namespace = obj.metadata.namespace, labelSelector = {matchLabels = {part = obj.metadata.name}}}}
end`}
	create(t, custom)
	t.Cleanup(func() { _ = cell.Delete(t.Context(), custom) })
	create(t, policy(ns, "p", []string{"PodTemplate"}, inMembers("member1"), withDependencies))
	create(t, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}, Template: deployment(ns, "x", 1).Spec.Template})
	until(t, "it is there", members["member1"], &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}, anything[*corev1.PodTemplate])
	cm := configMap(ns, "labelled", map[string]string{"k": "1"})
	create(t, cm)
	edit(t, cell, cm, func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"part": "app"} })
	delivered(t, "member1", ns, "labelled", "k", "1")
	edit(t, cell, configMapRef(ns, "labelled"), func(cm *corev1.ConfigMap) { cm.Labels = nil })
	untilGone(t, "without the label it is removed", members["member1"], configMapRef(ns, "labelled"))
}

// A dependency with its own policy is where the policy places it and where it is needed. When it is no longer needed,
// it stays only where the policy places it.
func TestDependencyWithAPolicyOfItsOwn(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "own", []string{"ConfigMap"}, inMembers("member2")), configMap(ns, "settings", map[string]string{"k": "1"}))
	delivered(t, "member2", ns, "settings", "k", "1")
	create(t, policy(ns, "web", []string{"Deployment"}, inMembers("member1"), withDependencies), mounting(deployment(ns, "web", 1), "settings"))
	delivered(t, "member1", ns, "settings", "k", "1")
	binding := until(t, "the scheduler's decision is kept apart", cell, bindingRef(ns, "settings-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.RequiredBy) == 1 })
	if len(binding.Spec.Clusters) != 1 || binding.Spec.Clusters[0].Name != "member2" {
		t.Errorf("its own policy places it in %+v", binding.Spec.Clusters)
	}
	edit(t, cell, configMapRef(ns, "settings"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member1", ns, "settings", "k", "2")
	delivered(t, "member2", ns, "settings", "k", "2")
	if err := cell.Delete(t.Context(), deploymentRef(ns, "web")); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "it is not needed in member1", members["member1"], configMapRef(ns, "settings"))
	kept := until(t, "its policy keeps the binding", cell, bindingRef(ns, "settings-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.RequiredBy) == 0 })
	if kept.UID != binding.UID || kept.DeletionTimestamp != nil {
		t.Errorf("the binding was recreated: %s was %s", kept.UID, binding.UID)
	}
	delivered(t, "member2", ns, "settings", "k", "2")
}

// P7: a change of a lazy policy waits for the template's next change for its dependencies, too.
func TestLazyDependencies(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := policy(ns, "lazy", []string{"Deployment"}, inMembers("member1"), withDependencies, func(spec *policyv1alpha1.PropagationSpec) {
		spec.ActivationPreference = policyv1alpha1.LazyActivation
	})
	create(t, p, configMap(ns, "settings", map[string]string{"k": "1"}), mounting(deployment(ns, "web", 1), "settings"))
	delivered(t, "member1", ns, "settings", "k", "1")
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
	barrier(t, ns)
	missing(t, "the dependency", members["member2"], configMapRef(ns, "settings"))
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) })
	delivered(t, "member2", ns, "settings", "k", "1")
	untilGone(t, "it has moved", members["member1"], configMapRef(ns, "settings"))
}
