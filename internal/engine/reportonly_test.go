package engine_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/difference"
)

// reportOnly makes a policy that has the engine report differences, and write nothing.
func reportOnly(p *policyv1alpha1.PropagationPolicy) *policyv1alpha1.PropagationPolicy {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, names.DispatchingAnnotation, names.DispatchingReportOnly)
	p.Spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
	return p
}

// differs waits until the Work of an object in member1 tells how it differs. All words must be in the message.
func differs(t *testing.T, kind, ns, name string, status metav1.ConditionStatus, words ...string) string {
	t.Helper()
	message := ""
	until(t, "the Work of "+kind+" "+name+" tells "+strings.Join(words, ", "), cell, workRef("member1", kind, ns, name), func(w *workv1alpha1.Work) bool {
		c := meta.FindStatusCondition(w.Status.Conditions, names.Differs)
		if c == nil || c.Status != status || c.ObservedGeneration != w.Generation {
			return false
		}
		message = c.Message
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
	})
	return message
}

// untouched checks that an object in member1 was not written to since.
func untouched(t *testing.T, before ctrlclient.Object, now ctrlclient.Object) {
	t.Helper()
	if err := members["member1"].Get(t.Context(), ctrlclient.ObjectKeyFromObject(now), now); err != nil {
		t.Fatal(err)
	}
	if now.GetGeneration() != before.GetGeneration() || len(now.GetLabels()) != len(before.GetLabels()) || len(now.GetManagedFields()) != len(before.GetManagedFields()) {
		t.Errorf("%T %s was written to: %v", now, now.GetName(), now.GetManagedFields())
	}
}

// withoutRevision returns the Deployment web of member1 without the annotation that its controller there writes.
func withoutRevision(t *testing.T, ns string) *unstructured.Unstructured {
	t.Helper()
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if err := members["member1"].Get(t.Context(), ctrlclient.ObjectKey{Namespace: ns, Name: "web"}, d); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(d.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	return d
}

func runBy(account string, d *appsv1.Deployment) *appsv1.Deployment {
	d.Spec.Template.Spec.ServiceAccountName = account
	return d
}

// What runs in members before is compared with what the federation would write. Nothing is written, and its status is reported already.
func TestReportOnly(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	member := members["member1"]
	running, elsewhere := deployment(ns, "web", 2), deployment(ns, "web", 3)
	running.Spec.Template.Spec.Containers[0].Image = "registry.example/app:hand"
	theirs, secret := configMap(ns, "conf", map[string]string{"k": "member"}), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"k": "hidden"}}
	refused := deployment(ns, "refused", 1)
	refused.Spec.Selector.MatchLabels["app"], refused.Spec.Template.Labels["app"] = "other", "other"
	createIn(t, member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	createIn(t, member, running, theirs, secret, refused)
	running = until(t, "it runs", member, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
	before := withoutRevision(t, ns)

	p := reportOnly(policy(ns, "all", []string{"Deployment", "ConfigMap", "Secret"}, inMembers("member1"), withDependencies))
	create(t, p, elsewhere, configMap(ns, "conf", map[string]string{"k": "federation"}), configMap(ns, "missing", map[string]string{"k": "1"}),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"k": "other"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "robot"}}, runBy("robot", deployment(ns, "refused", 1)))

	message := differs(t, "Deployment", ns, "web", metav1.ConditionTrue, "would change: spec.replicas, spec.template.spec.containers[c].image\n", "spec.replicas: 2 -> 3", `"registry.example/app:hand" ->`)
	if first, _, _ := strings.Cut(message, "\n"); strings.Contains(first, "hand") {
		t.Errorf("the first line has values: %s", first)
	}
	differs(t, "ConfigMap", ns, "conf", metav1.ConditionTrue, `data.k: "member" -> "federation"`)
	differs(t, "ConfigMap", ns, "missing", metav1.ConditionTrue, "does not exist and would be created")
	differs(t, "Deployment", ns, "refused", metav1.ConditionTrue, "would be refused by the cluster", "spec.selector")
	if message := differs(t, "Secret", ns, "key", metav1.ConditionTrue, "data.k would change"); strings.Contains(message, "aGlkZGVu") {
		t.Errorf("the content of the Secret is shown: %s", message)
	}
	until(t, "the binding tells", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		c := meta.FindStatusCondition(b.Status.Conditions, names.Differs)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == names.ReasonWouldChange && strings.Contains(c.Message, "cluster member1: Deployment "+ns+"/web would change: spec.replicas") &&
			!strings.Contains(c.Message, "hand")
	})
	until(t, "the binding does not quote the member", cell, bindingRef(ns, "refused-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		c := meta.FindStatusCondition(b.Status.Conditions, names.Differs)
		return c != nil && strings.HasSuffix(c.Message, "would be refused by the cluster (Invalid)")
	})
	event(t, cell, ns, "web", names.EventDiffers)
	until(t, "the template counts what runs", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
	untouched(t, running, deploymentRef(ns, "web"))
	untouched(t, theirs, configMapRef(ns, "conf"))

	// Both sides may change.
	edit(t, member, configMapRef(ns, "conf"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "changed" })
	differs(t, "ConfigMap", ns, "conf", metav1.ConditionTrue, `data.k: "changed" -> "federation"`)
	edit(t, cell, configMapRef(ns, "conf"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "changed" })
	differs(t, "ConfigMap", ns, "conf", metav1.ConditionFalse, "would change nothing")
	createIn(t, member, configMap(ns, "missing", map[string]string{"k": "1"}))
	differs(t, "ConfigMap", ns, "missing", metav1.ConditionFalse)

	// What a template refers to, and no policy selects, is left alone, too.
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "robot"}}
	if err := member.Get(t.Context(), ctrlclient.ObjectKeyFromObject(robot), robot); !apierrors.IsNotFound(err) {
		t.Errorf("a dependency was written: %v", err)
	}
	if err := cell.Get(t.Context(), ctrlclient.ObjectKey{Namespace: ns, Name: "robot-serviceaccount"}, bindingRef(ns, "")); !apierrors.IsNotFound(err) {
		t.Errorf("a dependency is to be written: %v", err)
	}

	// Then it is taken over.
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { delete(p.Annotations, names.DispatchingAnnotation) })
	until(t, "it is as the federation wants", member, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return *d.Spec.Replicas == 3 && d.Labels[names.ManagedLabel] == names.ManagedValue
	})
	var changed []string
	for _, change := range difference.Between(before, withoutRevision(t, ns)) {
		changed = append(changed, change.Field)
	}
	if first, _, _ := strings.Cut(message, "\n"); !strings.HasSuffix(first, " would change: "+strings.Join(changed, ", ")) {
		t.Errorf("%q was reported, and %v have changed", first, changed)
	}
	until(t, "so are its dependencies", member, robot, anything[*corev1.ServiceAccount])
	until(t, "the Work is applied", cell, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
		return meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkApplied) && meta.FindStatusCondition(w.Status.Conditions, names.Differs) == nil &&
			w.Annotations[names.DispatchingAnnotation] == ""
	})
	until(t, "the binding has no such condition", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.FindStatusCondition(b.Status.Conditions, names.Differs) == nil
	})
}

// Drift of what the federation manages is reported and stays, also when the template is deleted.
func TestReportedDrift(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := policy(ns, "all", []string{"ConfigMap"}, inMembers("member1"))
	create(t, p, configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) {
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, names.DispatchingAnnotation, names.DispatchingReportOnly)
	})
	differs(t, "ConfigMap", ns, "cm", metav1.ConditionFalse)
	if got := metric(t, "cellplane_reported_differences", "member1", "ConfigMap", ns); got != nil {
		t.Errorf("the metric is %v without a difference", *got)
	}
	edit(t, members["member1"], configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "by hand" })
	differs(t, "ConfigMap", ns, "cm", metav1.ConditionTrue, `data.k: "by hand" -> "1"`)
	if got := metric(t, "cellplane_reported_differences", "member1", "ConfigMap", ns); got == nil || *got != 1 {
		t.Errorf("the metric is %v with a difference", got)
	}
	edit(t, members["member1"], configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "1" })
	differs(t, "ConfigMap", ns, "cm", metav1.ConditionFalse)

	// A value that is not known does not let the engine write.
	edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) {
		cm.Annotations[names.DispatchingAnnotation], cm.Data["k"] = "reportonly", "2"
	})
	differs(t, "ConfigMap", ns, "cm", metav1.ConditionTrue, `data.k: "1" -> "2"`)
	if e := event(t, cell, ns, "cm-configmap", names.EventSyncWorkFailed); !strings.Contains(e.Message, `is "reportonly", but must be ReportOnly`) {
		t.Errorf("event: %s", e.Message)
	}
	delivered(t, "member1", ns, "cm", "k", "1")

	if err := cell.Delete(t.Context(), configMapRef(ns, "cm")); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "the Work is gone", cell, workRef("member1", "ConfigMap", ns, "cm"))
	if cm := until(t, "it stays", members["member1"], configMapRef(ns, "cm"), anything[*corev1.ConfigMap]); cm.Labels[names.ManagedLabel] != "" || cm.Data["k"] != "1" {
		t.Errorf("it has the labels %v and the data %v", cm.Labels, cm.Data)
	}
}
