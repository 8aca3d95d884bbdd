package engine_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// namespace creates a namespace for a test in the cell.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	create(t, ns)
	return ns.Name
}

func create(t *testing.T, objects ...ctrlclient.Object) {
	t.Helper()
	createIn(t, cell, objects...)
}

func createIn(t *testing.T, client ctrlclient.Client, objects ...ctrlclient.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := client.Create(t.Context(), obj); err != nil {
			t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
		}
	}
}

// edit changes an object and retries conflicts.
func edit[T ctrlclient.Object](t *testing.T, client ctrlclient.Client, obj T, change func(T)) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%T %s can be changed", obj, obj.GetName()), func(ctx context.Context) (bool, error) {
		if err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		change(obj)
		err := client.Update(ctx, obj)
		return err == nil, err
	})
}

// until waits until an object satisfies a condition.
func until[T ctrlclient.Object](t *testing.T, what string, client ctrlclient.Client, obj T, ok func(T) bool) T {
	t.Helper()
	testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
		if err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		if !ok(obj) {
			return false, fmt.Errorf("%T %s is %+v", obj, obj.GetName(), obj)
		}
		return true, nil
	})
	return obj
}

func untilGone(t *testing.T, what string, client ctrlclient.Client, obj ctrlclient.Object) {
	t.Helper()
	testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
		err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj)
		return apierrors.IsNotFound(err), err
	})
}

func anything[T any](T) bool { return true }

func deployment(ns, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/app:1"}}},
			},
		},
	}
}

func deploymentRef(ns, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func configMapRef(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func configMap(ns, name string, data map[string]string) *corev1.ConfigMap {
	cm := configMapRef(ns, name)
	cm.Data = data
	return cm
}

func bindingRef(ns, name string) *workv1alpha2.ResourceBinding {
	return &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func workRef(cluster, kind, ns, name string) *workv1alpha1.Work {
	return &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName(kind, ns, name)}}
}

func selectKind(kind string) policyv1alpha1.ResourceSelector {
	switch kind {
	case "Deployment", "StatefulSet", "ReplicaSet":
		return policyv1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: kind}
	case "Job":
		return policyv1alpha1.ResourceSelector{APIVersion: "batch/v1", Kind: kind}
	default:
		return policyv1alpha1.ResourceSelector{APIVersion: "v1", Kind: kind}
	}
}

// policy places the kinds in all members unless changed.
func policy(ns, name string, kinds []string, change ...func(*policyv1alpha1.PropagationSpec)) *policyv1alpha1.PropagationPolicy {
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	for _, kind := range kinds {
		p.Spec.ResourceSelectors = append(p.Spec.ResourceSelectors, selectKind(kind))
	}
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

func inMembers(clusters ...string) func(*policyv1alpha1.PropagationSpec) {
	return func(spec *policyv1alpha1.PropagationSpec) {
		spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: clusters}
	}
}

func TestDeploymentTravelsAndReportsBack(t *testing.T) {
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"Deployment"}), deployment(ns, "web", 3))

	for name, member := range members {
		got := until(t, "the Deployment is in "+name, member, deploymentRef(ns, "web"), anything[*appsv1.Deployment])
		if *got.Spec.Replicas != 3 || got.Labels[names.ManagedLabel] != "true" || got.Labels[names.CellLabel] == "" {
			t.Errorf("%s has %d replicas and labels %v", name, *got.Spec.Replicas, got.Labels)
		}
	}
	until(t, "the template has the aggregated status", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Status.ReadyReplicas == 6 && d.Status.Replicas == 6 && d.Status.ObservedGeneration == d.Generation
	})
	binding := until(t, "the binding is fully applied", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingFullyApplied) && meta.IsStatusConditionTrue(b.Status.Conditions, names.BindingScheduled) &&
			b.Status.SchedulerObservedGeneration == b.Generation
	})
	if len(binding.Status.AggregatedStatus) != 2 || binding.Status.AggregatedStatus[0].ClusterName != "member1" || !binding.Status.AggregatedStatus[1].Applied {
		t.Errorf("aggregated status is %+v", binding.Status.AggregatedStatus)
	}
	until(t, "the Work has the status", cell, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
		return meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkApplied) && len(w.Status.ManifestStatuses) == 1 &&
			w.Status.ManifestStatuses[0].Health == workv1alpha1.ResourceHealthy
	})

	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2" })
	for name, member := range members {
		until(t, "the new image is in "+name, member, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
			return d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
		})
	}
	until(t, "the template is observed", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == 6 && d.Status.Replicas == 6
	})

	if err := cell.Delete(t.Context(), deploymentRef(ns, "web")); err != nil {
		t.Fatal(err)
	}
	for name, member := range members {
		untilGone(t, "the Deployment is deleted in "+name, member, deploymentRef(ns, "web"))
	}
	untilGone(t, "the binding is gone", cell, bindingRef(ns, "web-deployment"))
	untilGone(t, "the Work is gone", cell, workRef("member1", "Deployment", ns, "web"))
}

func TestDriftIsRepaired(t *testing.T) {
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"ConfigMap"}, inMembers("member1")), configMap(ns, "settings", map[string]string{"a": "1"}))
	member := members["member1"]
	until(t, "it is there", member, configMapRef(ns, "settings"), anything[*corev1.ConfigMap])

	edit(t, member, configMapRef(ns, "settings"), func(cm *corev1.ConfigMap) {
		cm.Data["a"] = "changed"
		cm.Data["b"] = "added"
	})
	until(t, "fields of the template are restored and others are kept", member, configMapRef(ns, "settings"), func(cm *corev1.ConfigMap) bool {
		return cm.Data["a"] == "1" && cm.Data["b"] == "added"
	})
	if err := member.Delete(t.Context(), configMapRef(ns, "settings")); err != nil {
		t.Fatal(err)
	}
	until(t, "the deleted object is recreated", member, configMapRef(ns, "settings"), func(cm *corev1.ConfigMap) bool { return cm.Data["a"] == "1" })
	err := members["member2"].Get(t.Context(), ctrlclient.ObjectKeyFromObject(configMapRef(ns, "settings")), configMapRef(ns, "settings"))
	if !apierrors.IsNotFound(err) {
		t.Errorf("member2, which was not chosen: %v", err)
	}
}

func TestConflictResolution(t *testing.T) {
	ns := namespace(t)
	member := members["member1"]
	createIn(t, member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, configMap(ns, "mine", map[string]string{"owner": "member"}))
	create(t, policy(ns, "all", []string{"ConfigMap"}, inMembers("member1")), configMap(ns, "mine", map[string]string{"owner": "federation"}))

	until(t, "the Work reports why it is not applied", cell, workRef("member1", "ConfigMap", ns, "mine"), func(w *workv1alpha1.Work) bool {
		applied := meta.FindStatusCondition(w.Status.Conditions, names.WorkApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && applied.Reason == "ResourceConflict"
	})
	until(t, "the binding reports it, too", cell, bindingRef(ns, "mine-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
		return len(b.Status.AggregatedStatus) == 1 && !b.Status.AggregatedStatus[0].Applied && b.Status.AggregatedStatus[0].AppliedMessage != ""
	})
	if got := until(t, "it is there", member, configMapRef(ns, "mine"), anything[*corev1.ConfigMap]); got.Data["owner"] != "member" || got.Labels[names.ManagedLabel] != "" {
		t.Errorf("the member's own object was touched: %+v", got)
	}

	edit(t, cell, policy(ns, "all", nil), func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
	})
	until(t, "it is taken over", member, configMapRef(ns, "mine"), func(cm *corev1.ConfigMap) bool {
		return cm.Data["owner"] == "federation" && cm.Labels[names.ManagedLabel] == "true"
	})
}

// TestTakeOverRefused checks that an existing object is taken over although the API server refuses to create it before it looks at the name: the
// node port is taken, and the quota is used up.
func TestTakeOverRefused(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	member := members["member1"]
	service := func(name, owner string, nodePort int32) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"owner": owner}}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}},
		}}
	}
	claim := func(name, owner string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"owner": owner}}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
	}
	create(t, policy(ns, "all", []string{"Service", "PersistentVolumeClaim"}, inMembers("member1"), func(spec *policyv1alpha1.PropagationSpec) {
		spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
	}), service("first", "federation", 31233), claim("first", "federation"))
	// From now on the engine knows which objects of these kinds are its own, and creates others without looking.
	until(t, "a Service is there", member, service("first", "", 0), anything[*corev1.Service])
	until(t, "a claim is there", member, claim("first", ""), anything[*corev1.PersistentVolumeClaim])

	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"persistentvolumeclaims": resource.MustParse("2")}}}
	createIn(t, member, service("web", "member", 31234), claim("data", "member"), quota)
	until(t, "the quota is used up", member, quota, func(q *corev1.ResourceQuota) bool {
		used := q.Status.Used["persistentvolumeclaims"]
		return used.Value() == 2
	})
	create(t, service("web", "federation", 31234), claim("data", "federation"))
	until(t, "the Service is taken over", member, service("web", "", 0), func(s *corev1.Service) bool {
		return s.Labels["owner"] == "federation" && s.Labels[names.ManagedLabel] == "true"
	})
	until(t, "the claim is taken over", member, claim("data", ""), func(c *corev1.PersistentVolumeClaim) bool {
		return c.Labels["owner"] == "federation" && c.Labels[names.ManagedLabel] == "true"
	})
}

// P23: objects in a member that are not ours are not deleted, whether they existed first or were taken from us.
func TestOnlyOurOwnIsDeleted(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	member := members["member1"]
	// An object that another federation manages is not ours either.
	another := configMap(ns, "another", map[string]string{"owner": "member"})
	another.Labels = map[string]string{names.ManagedLabel: names.ManagedValue, names.WorkPermanentIDLabel: "another"}
	createIn(t, member, namespaceRef(ns), configMap(ns, "theirs", map[string]string{"owner": "member"}), another)
	create(t, policy(ns, "all", []string{"ConfigMap"}, inMembers("member1")))
	for _, name := range []string{"theirs", "another", "taken"} {
		create(t, configMap(ns, name, map[string]string{"owner": "federation"}))
	}
	for _, name := range []string{"theirs", "another"} {
		until(t, "the Work reports that it is not applied", cell, workRef("member1", "ConfigMap", ns, name), func(w *workv1alpha1.Work) bool {
			return meta.IsStatusConditionFalse(w.Status.Conditions, names.WorkApplied)
		})
	}
	delivered(t, "member1", ns, "taken", "owner", "federation")
	edit(t, member, configMapRef(ns, "taken"), func(cm *corev1.ConfigMap) {
		for _, label := range []string{names.ManagedLabel, names.WorkPermanentIDLabel, names.ResourceBindingPermanentIDLabel} {
			delete(cm.Labels, label)
		}
	})
	for _, name := range []string{"theirs", "another", "taken"} {
		if err := cell.Delete(t.Context(), configMapRef(ns, name)); err != nil {
			t.Fatal(err)
		}
		untilGone(t, "the Work is gone", cell, workRef("member1", "ConfigMap", ns, name))
	}
	for _, name := range []string{"theirs", "another"} {
		if found := delivered(t, "member1", ns, name, "owner", "member"); found.DeletionTimestamp != nil {
			t.Errorf("%s is being deleted", name)
		}
	}
	delivered(t, "member1", ns, "taken", "owner", "federation")
}
