package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// An engine that restarts finds everything up to date and writes nothing, in the cell and in the members.
func TestRestartWritesNothing(t *testing.T) {
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"Deployment", "ConfigMap", "Service"}, withDependencies))
	for _, name := range []string{"a", "b", "c"} {
		create(t, deployment(ns, name, 1), configMap(ns, name, map[string]string{"k": "v"}),
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	}
	for _, name := range []string{"a", "b", "c"} {
		until(t, "it is reported", cell, deploymentRef(ns, name), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
		delivered(t, "member1", ns, name, "k", "v")
	}
	atRest(t, ns)
	settle(t)
	stopEngine()
	version := func() string {
		return until(t, "it is there", members["member1"], configMapRef(ns, "a"), anything[*corev1.ConfigMap]).ResourceVersion
	}
	before, there := stored(t, ns), version()
	stopEngine = startEngine(context.Background())
	barrierless := configMap(ns, "after", map[string]string{"k": "v"})
	settle(t)
	if diff := cmp.Diff(before, stored(t, ns)); diff != "" {
		t.Errorf("the engine wrote (-before +after):\n%s", diff)
	}
	if now := version(); now != there {
		t.Errorf("the member's object was rewritten: %s, then %s", there, now)
	}
	create(t, barrierless)
	delivered(t, "member1", ns, "after", "k", "v")
}

// atRest waits until the status of all Works of a namespace is final. Until then an engine collects changes before it writes them.
func atRest(t *testing.T, ns string) {
	t.Helper()
	testenv.Eventually(t, "the Works are at rest", func(ctx context.Context) (bool, error) {
		var works workv1alpha1.WorkList
		if err := cell.List(ctx, &works); err != nil {
			return false, err
		}
		for _, work := range works.Items {
			if work.Annotations[names.ResourceBindingNamespaceAnnotation] == ns && !meta.IsStatusConditionFalse(work.Status.Conditions, names.WorkProgressing) {
				return false, fmt.Errorf("Work %s/%s is %+v", work.Namespace, work.Name, work.Status)
			}
		}
		return true, nil
	})
}

// stored returns the versions and the status of what the cell has of a namespace. Works of other tests may be retried after a restart.
func stored(t *testing.T, ns string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, kind := range []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Service"),
		corev1.SchemeGroupVersion.WithKind("Event"), workv1alpha2.GroupVersion.WithKind("ResourceBinding"), workv1alpha1.GroupVersion.WithKind("Work"),
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := cell.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if obj := &list.Items[i]; obj.GetNamespace() == ns || obj.GetAnnotations()[names.ResourceBindingNamespaceAnnotation] == ns {
				status, err := json.Marshal(obj.Object["status"])
				if err != nil {
					t.Fatal(err)
				}
				versions[kind.Kind+" "+obj.GetNamespace()+"/"+obj.GetName()] = obj.GetResourceVersion() + " " + string(status)
			}
		}
	}
	if len(versions) < 9*4 { // each template with its binding and two Works
		t.Fatalf("the cell has only %v", versions)
	}
	return versions
}

// P7: changes while no engine runs count like others. A change of a lazy policy alone waits; a change of the template
// applies it.
func TestLazyWhileAway(t *testing.T) {
	ns := namespace(t)
	p := policy(ns, "lazy", []string{"Deployment"}, inMembers("member1"), func(spec *policyv1alpha1.PropagationSpec) { spec.ActivationPreference = policyv1alpha1.LazyActivation })
	create(t, p, deployment(ns, "same", 1), deployment(ns, "changed", 1))
	for _, name := range []string{"same", "changed"} {
		until(t, "it is there", members["member1"], deploymentRef(ns, name), anything[*appsv1.Deployment])
	}
	stopEngine()
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
	edit(t, cell, deploymentRef(ns, "changed"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) })
	stopEngine = startEngine(context.Background())
	until(t, "the policy was applied with the change", members["member2"], deploymentRef(ns, "changed"), func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 })
	barrier(t, ns)
	missing(t, "an unchanged template", members["member2"], deploymentRef(ns, "same"))
}

// P24, B6, B7: an unreachable member delays no other member; what it missed is applied when it is back.
func TestMemberDoesNotAnswer(t *testing.T) {
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"Deployment"}), deployment(ns, "web", 1))
	until(t, "it is reported", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Status.ReadyReplicas == 2 && d.Status.ObservedGeneration == d.Generation
	})
	server, err := federation.Process("member2/" + kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			if err := server.Resurrect(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(resume)

	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2" })
	create(t, deployment(ns, "new", 1))
	for _, name := range []string{"web", "new"} {
		until(t, "member1 is served", members["member1"], deploymentRef(ns, name), anything[*appsv1.Deployment])
	}
	until(t, "the Work has the reason", cell, workRef("member2", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
		return meta.IsStatusConditionFalse(w.Status.Conditions, names.WorkApplied)
	})
	until(t, "the binding reports it", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.IsStatusConditionFalse(b.Status.Conditions, names.BindingFullyApplied) && len(b.Status.AggregatedStatus) == 2 &&
			b.Status.AggregatedStatus[0].Applied && !b.Status.AggregatedStatus[1].Applied && b.Status.AggregatedStatus[1].Status != nil
	})
	event(t, cell, "karmada-es-member2", names.WorkName("Deployment", ns, "web"), names.EventSyncFailed)
	until(t, "the template does not count as observed", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration < d.Generation && d.Status.UpdatedReplicas >= 1
	})

	resume()
	until(t, "the missed change is applied", members["member2"], deploymentRef(ns, "new"), anything[*appsv1.Deployment])
	until(t, "all is observed", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration == d.Generation })
	until(t, "all is applied", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingFullyApplied)
	})
}

// Two engines: one leads, the other stands by and takes over.
func TestStandbyTakesOver(t *testing.T) {
	stopEngine()
	defer func() {
		stopEngine = startEngine(context.Background())
	}()
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"ConfigMap"}, inMembers("member1")))
	elected := engine.Config{Cell: federation.Cells[0].Name(), Config: cellConfig, LeaderElect: true}
	stopFirst := enginetest.Start(t.Context(), elected)
	create(t, configMap(ns, "one", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "one", "k", "1")
	stopSecond := enginetest.Start(t.Context(), elected)
	defer stopSecond()
	stopFirst()
	create(t, configMap(ns, "two", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "two", "k", "1")
}

// P6: with preemption enabled, a policy of higher priority takes a template from another; a policy whose priority is
// lowered loses it.
func TestPreemption(t *testing.T) {
	stopEngine()
	stopPreempting := enginetest.Start(t.Context(), engine.Config{Cell: federation.Cells[0].Name(), Config: cellConfig, Preemption: true})
	defer func() {
		stopPreempting()
		stopEngine = startEngine(context.Background())
	}()
	ns := namespace(t)
	preempts := func(priority int32) func(*policyv1alpha1.PropagationSpec) {
		return func(spec *policyv1alpha1.PropagationSpec) {
			spec.ResourceSelectors[0].Name = "cm"
			spec.Preemption, spec.Priority = policyv1alpha1.PreemptAlways, ptr.To(priority)
		}
	}
	create(t, policy(ns, "first", []string{"ConfigMap"}, inMembers("member1"), preempts(1)), configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	second := policy(ns, "second", []string{"ConfigMap"}, inMembers("member2"), preempts(2))
	create(t, second)
	delivered(t, "member2", ns, "cm", "k", "1")
	untilGone(t, "it has moved", members["member1"], configMapRef(ns, "cm"))
	event(t, cell, ns, "cm", names.EventPreemptPolicySucceed)
	edit(t, cell, second, func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Priority = ptr.To(int32(0)) })
	delivered(t, "member1", ns, "cm", "k", "1")

	// The claim of a lazy policy raises the generation of a Deployment, but is no change by its user.
	create(t, policy(ns, "eager", []string{"Deployment"}, inMembers("member1")), deployment(ns, "web", 1))
	until(t, "it is there", members["member1"], deploymentRef(ns, "web"), anything[*appsv1.Deployment])
	create(t, policy(ns, "lazy", []string{"Deployment"}, inMembers("member2"), func(spec *policyv1alpha1.PropagationSpec) {
		spec.ActivationPreference = policyv1alpha1.LazyActivation
		spec.ResourceSelectors[0].Name = "web"
		spec.Preemption, spec.Priority = policyv1alpha1.PreemptAlways, ptr.To[int32](5)
	}))
	until(t, "the lazy policy has taken over", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Annotations[names.PropagationPolicyNameAnnotation] == "lazy"
	})
	barrier(t, ns)
	missing(t, "an unchanged template", members["member2"], deploymentRef(ns, "web"))
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) })
	until(t, "the policy was applied with the change", members["member2"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 })
}

// A deleted cluster does not keep Works, bindings or templates from being deleted.
func TestClusterGone(t *testing.T) {
	ns := namespace(t)
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "ghost"}, Spec: clusterv1alpha1.ClusterSpec{
		SyncMode: clusterv1alpha1.Push, APIEndpoint: "https://127.0.0.1:1",
		SecretRef: &clusterv1alpha1.LocalSecretReference{Namespace: names.ClusterNamespace, Name: "member1"},
	}}
	create(t, cluster)
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("ghost", "member1")), configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	until(t, "the Work has the reason", cell, workRef("ghost", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
		return meta.IsStatusConditionFalse(w.Status.Conditions, names.WorkApplied)
	})
	if err := cell.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "the Work is deleted", cell, workRef("ghost", "ConfigMap", ns, "cm"))
	until(t, "the binding is updated", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Spec.Clusters) == 1 && meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingFullyApplied)
	})
}

// B1, B2: a cluster keeps its Work during a graceful eviction; with a direct purge, new clusters wait.
func TestEviction(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1", "member2")), configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	delivered(t, "member2", ns, "cm", "k", "1")
	edit(t, cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) {
		b.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{{FromCluster: "member1", PurgeMode: policyv1alpha1.PurgeModeGracefully, SuppressDeletion: ptr.To(true), Reason: "Test", Producer: "Test"}}
	})
	until(t, "the scheduler removes it", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) == 1 })
	barrier(t, ns)
	delivered(t, "member1", ns, "cm", "k", "1")
	edit(t, cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) {
		b.Spec.GracefulEvictionTasks[0].PurgeMode = policyv1alpha1.PurgeModeDirectly
	})
	untilGone(t, "it is deleted at once", members["member1"], configMapRef(ns, "cm"))
}

// B2: with a direct purge, the next cluster gets nothing before the old Work is deleted.
func TestPurgeFirst(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := policy(ns, "p", []string{"ConfigMap"}, inMembers("member1"))
	create(t, p, configMap(ns, "cm", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "cm", "k", "1")
	edit(t, cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) { w.Finalizers = append(w.Finalizers, "example.com/hold") })
	edit(t, cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) {
		b.Spec.GracefulEvictionTasks = []workv1alpha2.GracefulEvictionTask{{FromCluster: "member1", PurgeMode: policyv1alpha1.PurgeModeDirectly, SuppressDeletion: ptr.To(true), Reason: "Test", Producer: "Test"}}
	})
	edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
	until(t, "it is scheduled to member2", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Spec.Clusters) == 1 && b.Spec.Clusters[0].Name == "member2"
	})
	until(t, "the old Work is being deleted", cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool { return w.DeletionTimestamp != nil })
	barrier(t, ns)
	missing(t, "the new Work while the old one exists", cell, workRef("member2", "ConfigMap", ns, "cm"))
	edit(t, cell, workRef("member1", "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) {
		w.Finalizers = slices.DeleteFunc(w.Finalizers, func(f string) bool { return f == "example.com/hold" })
	})
	delivered(t, "member2", ns, "cm", "k", "1")
}

// P17: a kind that is installed while the engine runs is propagated, merged and reported like any other.
func TestNewKind(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	crd := func() *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
				}},
			},
		}
	}
	widget := func() *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
		obj.SetNamespace(ns)
		obj.SetName("w")
		return obj
	}
	create(t, crd())
	p := policy(ns, "p", nil, inMembers("member1"))
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "example.com/v1", Kind: "Widget"}}
	create(t, p)
	w := widget()
	w.Object["spec"] = map[string]any{"size": int64(1)}
	testenv.Eventually(t, "the cell serves widgets", func(ctx context.Context) (bool, error) {
		err := cell.Create(ctx, w.DeepCopy())
		return err == nil, err
	})
	// The member does not serve the kind yet: this is reported, and the object applied once it does.
	until(t, "the Work has the reason", cell, workRef("member1", "Widget", ns, "w"), func(w *workv1alpha1.Work) bool {
		applied := meta.FindStatusCondition(w.Status.Conditions, names.WorkApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, "Widget")
	})
	createIn(t, members["member1"], crd())
	copied := until(t, "it is there", members["member1"], widget(), anything[*unstructured.Unstructured])
	copied.Object["status"] = map[string]any{"phase": "Ready"}
	testenv.Eventually(t, "the member's controller reports", func(ctx context.Context) (bool, error) {
		if err := members["member1"].Get(ctx, ctrlclient.ObjectKeyFromObject(copied), copied); err != nil {
			return false, err
		}
		copied.Object["status"] = map[string]any{"phase": "Ready"}
		err := members["member1"].Status().Update(ctx, copied)
		return err == nil, err
	})
	until(t, "the binding has the whole status", cell, bindingRef(ns, "w-widget"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && b.Status.AggregatedStatus[0].Status != nil && strings.Contains(string(b.Status.AggregatedStatus[0].Status.Raw), "Ready")
	})
}

// Invalid input ends in a condition or an event and affects nothing else.
func TestMistakes(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	broken := policy(ns, "broken", []string{"ConfigMap"}, func(spec *policyv1alpha1.PropagationSpec) {
		spec.ResourceSelectors[0].LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Bogus"}}}
	})
	create(t, broken)
	event(t, cell, ns, "broken", names.EventApplyPolicyFailed)
	custom := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	custom.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "v1", Kind: "ReplicationController"}
	custom.Spec.Customizations.ReplicaResource = &configv1alpha1.ReplicaResourceRequirement{LuaScript: "function GetReplicas(obj) while true do end end"}
	create(t, custom)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), custom) })
	create(t, policy(ns, "p", []string{"ReplicationController", "ConfigMap"}, inMembers("member1")))
	create(t, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "loops"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"a": "b"}, Template: &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/app:1"}}},
	}}})
	event(t, cell, ns, "loops", names.EventApplyPolicyFailed)
	create(t, configMap(ns, "fine", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "fine", "k", "1")
}

// Templates, bindings and Works that belong to another cell, and copies of what is on the hub, are left alone.
func TestFrozenObjects(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")))
	frozen := configMap(ns, "frozen", map[string]string{"k": "1"})
	frozen.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}
	copied := configMap(ns, "copied", map[string]string{"k": "1"})
	copied.Annotations = map[string]string{names.CopiedFromHubAnnotation: "uid-on-the-hub"}
	create(t, frozen, copied, configMap(ns, "moving", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "moving", "k", "1")
	barrier(t, ns)
	missing(t, "a binding of a frozen template", cell, bindingRef(ns, "frozen-configmap"))
	missing(t, "a binding of a copy", cell, bindingRef(ns, "copied-configmap"))

	label := map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}
	for _, obj := range []ctrlclient.Object{bindingRef(ns, "moving-configmap"), workRef("member1", "ConfigMap", ns, "moving"), configMapRef(ns, "moving")} {
		edit(t, cell, obj, func(obj ctrlclient.Object) {
			labels := obj.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			for key, value := range label {
				labels[key] = value
			}
			obj.SetLabels(labels)
		})
	}
	edit(t, cell, configMapRef(ns, "moving"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	if err := cell.Delete(t.Context(), configMapRef(ns, "moving")); err != nil {
		t.Fatal(err)
	}
	barrier(t, ns)
	delivered(t, "member1", ns, "moving", "k", "1")
	until(t, "the binding stays", cell, bindingRef(ns, "moving-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return b.DeletionTimestamp == nil })

	// An unfrozen template, as in its new cell, is the engine's.
	edit(t, cell, configMapRef(ns, "frozen"), func(cm *corev1.ConfigMap) { delete(cm.Labels, names.RebalanceStatusLabel) })
	delivered(t, "member1", ns, "frozen", "k", "1")
}
