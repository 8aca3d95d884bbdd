package scheduling_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// untilBindingPlaced waits until a binding, by its full name, is placed as given.
func (w *world) untilBindingPlaced(binding, want string) *workv1alpha2.ResourceBinding {
	w.Helper()
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: binding}}
	testenv.Eventually(w, binding+" is placed in "+want, func(ctx context.Context) (bool, error) {
		if err := w.client.Get(ctx, keyOf(b), b); err != nil {
			return false, err
		}
		return w.placed(b) == want, fmt.Errorf("it is in %q, status %+v", w.placed(b), b.Status)
	})
	return b
}

// A StatefulSet goes where its volumes are or can be created. One without such limits goes where most capacity is.
func TestVolumesOfStatefulSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	ledger(t, w.full("a"), 10, farButForOne, func(l *cellplanev1alpha1.ClusterLedger) {
		l.Volumes = []cellplanev1alpha1.LedgerVolumes{{Claims: []string{w.ns + "/data-known-1"}, Reach: zone("gone")}}
		l.StorageClasses = []cellplanev1alpha1.LedgerStorageClass{{Name: "near", Default: true, Reach: zone("near")}}
	})
	ledger(t, w.full("b"), 3)
	w.policy(aggregated, oneCluster, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "StatefulSet"}}
	})
	set := func(name string, replicas int32, class *string) *appsv1.StatefulSet {
		d := w.deployment(name, replicas)
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		claim.Spec.StorageClassName = class
		return &appsv1.StatefulSet{ObjectMeta: d.ObjectMeta, Spec: appsv1.StatefulSetSpec{
			Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template, ServiceName: name,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim},
		}}
	}
	w.create(set("free", 5, ptr.To("anywhere")))
	w.untilBindingPlaced("free-statefulset", "a:5")
	w.create(set("new", 5, nil)) // four replicas fit the node of the zone
	w.untilBindingPlaced("new-statefulset", "b:5")
	w.create(set("known", 3, ptr.To("anywhere")))
	w.untilBindingPlaced("known-statefulset", "b:3")
	w.create(set("small", 4, ptr.To("near")))
	b := w.untilBindingPlaced("small-statefulset", "a:4")
	l := &cellplanev1alpha1.ClusterLedger{}
	if err := hub.Get(t.Context(), ctrlclient.ObjectKey{Name: b.Spec.Clusters[0].Name}, l); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.Reservations {
		if r.Workload.Name == "small" && (len(r.Pods) != 1 || r.Pods[0].Class != "near" || r.Pods[0].Count != 4) {
			t.Errorf("expected on %+v in the ledger", r.Pods)
		}
	}
}

// S20: all components of a workload go into one cluster with nodes for each of them, and capacity is reserved for
// each. A set that does not fit as a whole is not scheduled.
func TestComponents(t *testing.T) {
	t.Parallel()
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "rayjobs.ray.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "ray.io", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "rayjobs", Singular: "rayjob", Kind: "RayJob", ListKind: "RayJobList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &anything}}},
		},
	}
	w := newWorld(t, "small-nodes", "large-nodes")
	w.create(crd)
	w.capacity("small-nodes", 1000)
	w.capacity("large-nodes", 100)
	ledger(t, w.full("small-nodes"), 100)
	ledger(t, w.full("large-nodes"), 3, func(l *cellplanev1alpha1.ClusterLedger) {
		l.Classes[0].Allocatable[corev1.ResourceCPU], l.Classes[0].Nodes[0].Free[corev1.ResourceCPU] = resource.MustParse("8"), resource.MustParse("8")
	})
	w.policy(aggregated, oneCluster, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "ray.io/v1", Kind: "RayJob"}}
	})
	template := func(cpus string) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "c", "image": "registry.example/ray:1", "resources": map[string]any{"requests": map[string]any{"cpu": cpus}},
		}}}}
	}
	ray := func(name string, workers int64) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": map[string]any{"rayClusterSpec": map[string]any{
			"headGroupSpec":    map[string]any{"template": template("1")},
			"workerGroupSpecs": []any{map[string]any{"groupName": "many", "replicas": workers, "template": template("6")}},
		}}}}
		obj.SetNamespace(w.ns)
		obj.SetName(name)
		return obj
	}
	testenv.Eventually(t, "the cell serves the kind", func(ctx context.Context) (bool, error) {
		err := w.client.Create(ctx, ray("train", 2))
		return err == nil, err
	})
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "train-rayjob"}}
	testenv.Eventually(t, "it is placed as a whole", func(ctx context.Context) (bool, error) {
		if err := w.client.Get(ctx, keyOf(b), b); err != nil {
			return false, err
		}
		return len(b.Spec.Clusters) == 1 && len(b.Spec.Clusters[0].Components) == 2, fmt.Errorf("it is in %+v, status %+v", b.Spec.Clusters, b.Status)
	})
	shares := map[string]int32{}
	for _, component := range b.Spec.Clusters[0].Components {
		shares[component.Name] = component.Replicas
	}
	if len(b.Spec.Components) != 2 || b.Spec.Clusters[0].Name != w.full("large-nodes") || len(shares) != 2 {
		t.Errorf("it is in %+v, its components are %+v", b.Spec.Clusters, b.Spec.Components)
	}
	for _, component := range b.Spec.Components {
		if shares[component.Name] != component.Replicas {
			t.Errorf("%d of %d replicas of %s are placed", shares[component.Name], component.Replicas, component.Name)
		}
	}
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(w.full("large-nodes")), Name: names.WorkName("RayJob", w.ns, "train")}}
	testenv.Eventually(t, "the Work exists", func(ctx context.Context) (bool, error) {
		err := w.client.Get(ctx, keyOf(work), work)
		return err == nil, err
	})
	l := &cellplanev1alpha1.ClusterLedger{}
	if err := hub.Get(t.Context(), ctrlclient.ObjectKey{Name: w.full("large-nodes")}, l); err != nil {
		t.Fatal(err)
	}
	reserved := map[string]int32{}
	for _, r := range l.Reservations {
		if r.Workload.Name == "train" {
			reserved[r.Component] = r.Total
		}
	}
	if len(reserved) != 2 {
		t.Errorf("the ledger reserves %v", reserved)
	}
	for name, share := range shares {
		if reserved[name] != share {
			t.Errorf("the ledger reserves %v, %v are placed", reserved, shares)
		}
	}

	w.create(ray("too-large", 2)) // one large node is left
	testenv.Eventually(t, "the other set is unschedulable", func(ctx context.Context) (bool, error) {
		b := &workv1alpha2.ResourceBinding{}
		if err := w.client.Get(ctx, ctrlclient.ObjectKey{Namespace: w.ns, Name: "too-large-rayjob"}, b); err != nil {
			return false, err
		}
		if len(b.Spec.Clusters) > 0 {
			t.Fatalf("it is in %+v", b.Spec.Clusters)
		}
		for _, condition := range b.Status.Conditions {
			if condition.Type == names.BindingScheduled {
				return condition.Reason == names.ReasonUnschedulable, fmt.Errorf("the condition is %+v", condition)
			}
		}
		return false, nil
	})
}
