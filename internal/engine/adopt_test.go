package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// P31: what runs in members with different images, variables, replicas and node ports is adopted as it is. No pod is
// deleted, no ReplicaSet is created, and no spec changes.
func TestAdoption(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	running := map[string]int32{"member1": 2, "member2": 3}
	for _, cluster := range slices.Sorted(maps.Keys(running)) {
		d := deployment(ns, "web", running[cluster])
		container := &d.Spec.Template.Spec.Containers[0]
		container.Image, container.Env = "registry.example/app:"+cluster, []corev1.EnvVar{{Name: "CLUSTER", Value: cluster}}
		container.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}}
		createIn(t, members[cluster], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, configMap(ns, "settings", map[string]string{"cluster": cluster}), d, s)
	}
	before := map[string]map[string]*unstructured.Unstructured{}
	watches := map[string]*podWatch{}
	for cluster, replicas := range running {
		until(t, "it runs in "+cluster, members[cluster], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
			return d.Status.ReadyReplicas == replicas && d.Status.ObservedGeneration == d.Generation
		})
		before[cluster] = adopted(t, members[cluster], ns)
		watches[cluster] = watchPods(t, members[cluster], ns)
	}

	// The manifests of the plan, in their order.
	planner := newPlanner(t)
	for _, kind := range adoptedKinds {
		item, err := planner.Plan(t.Context(), groupOf(kind.GroupVersionKind, before))
		if err != nil || len(item.Obstacles) > 0 {
			t.Fatalf("%s: err %v, obstacles %v", kind.Kind, err, item.Obstacles)
		}
		create(t, item.Override, item.Policy, item.Template)
	}

	// Nothing is dispatched before somebody has looked at it.
	for cluster := range running {
		for _, kind := range adoptedKinds {
			until(t, "the engine has rendered the "+kind.Kind, cell, workRef(cluster, kind.Kind, ns, kind.name), func(w *workv1alpha1.Work) bool {
				return ptr.Deref(w.Spec.SuspendDispatching, false)
			})
			obj := before[cluster][kind.Kind]
			now := until(t, "it is there", members[cluster], reference(obj), anything[*unstructured.Unstructured])
			if now.GetLabels()[names.ManagedLabel] != "" {
				t.Errorf("%s in %s was written while dispatching was suspended", kind.Kind, cluster)
			}
		}
	}
	for _, kind := range adoptedKinds {
		p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: names.BindingName(kind.Kind, kind.name)}}
		edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Suspension = nil })
	}
	for cluster := range running {
		for _, kind := range adoptedKinds {
			now := until(t, "the federation has taken it over", members[cluster], reference(before[cluster][kind.Kind]), func(obj *unstructured.Unstructured) bool {
				return obj.GetLabels()[names.ManagedLabel] == "true"
			})
			for _, change := range difference.Between(before[cluster][kind.Kind], now) {
				t.Errorf("%s in %s has changed: %+v", kind.Kind, cluster, change)
			}
			if was := before[cluster][kind.Kind].GetUID(); now.GetUID() != was {
				t.Errorf("%s in %s was %s and is %s", kind.Kind, cluster, was, now.GetUID())
			}
		}
	}
	until(t, "its status is reported", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 5 && *d.Spec.Replicas == 5 })
	for cluster, w := range watches {
		w.check(t, cluster, running[cluster])
	}

	// It is under the federation now: a change of the template arrives in both, with the overrides.
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].WorkingDir = "/new" })
	for cluster := range running {
		until(t, "the change has arrived in "+cluster, members[cluster], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
			container := &d.Spec.Template.Spec.Containers[0]
			return container.WorkingDir == "/new" && container.Image == "registry.example/app:"+cluster && container.Env[0].Value == cluster && *d.Spec.Replicas == running[cluster]
		})
	}
}

// adoptedKinds are the kinds of the test, in the order in which they are created.
var adoptedKinds = []struct {
	schema.GroupVersionKind
	name string
}{
	{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "settings"},
	{corev1.SchemeGroupVersion.WithKind("Service"), "web"},
	{appsv1.SchemeGroupVersion.WithKind("Deployment"), "web"},
}

func newPlanner(t *testing.T) *adopt.Planner {
	t.Helper()
	var clusters clusterv1alpha1.ClusterList
	if err := cell.List(t.Context(), &clusters); err != nil {
		t.Fatal(err)
	}
	p := adopt.Options{Interpreter: interpreter.New(interpreter.Options{})}
	for i := range clusters.Items {
		p.Clusters = append(p.Clusters, &clusters.Items[i])
	}
	return adopt.New(p)
}

// adopted returns the objects of a member, by kind.
func adopted(t *testing.T, member ctrlclient.Client, ns string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for _, kind := range adoptedKinds {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind.GroupVersionKind)
		obj.SetNamespace(ns)
		obj.SetName(kind.name)
		objects[kind.Kind] = until(t, "it is there", member, obj, anything[*unstructured.Unstructured])
	}
	return objects
}

func groupOf(kind schema.GroupVersionKind, objects map[string]map[string]*unstructured.Unstructured) adopt.Group {
	var group adopt.Group
	for _, cluster := range slices.Sorted(maps.Keys(objects)) {
		obj := objects[cluster][kind.Kind]
		group.Key = adopt.KeyOf(obj)
		group.Objects = append(group.Objects, adopt.Object{Cluster: cluster, Object: obj})
	}
	return group
}

func reference(obj *unstructured.Unstructured) *unstructured.Unstructured {
	ref := &unstructured.Unstructured{}
	ref.SetGroupVersionKind(obj.GroupVersionKind())
	ref.SetNamespace(obj.GetNamespace())
	ref.SetName(obj.GetName())
	return ref
}

// podWatch sees the pods and ReplicaSets of a namespace come and go.
type podWatch struct {
	client ctrlclient.WithWatch
	ns     string
	known  map[types.UID]bool
	pods   watch.Interface
	sets   watch.Interface
}

func watchPods(t *testing.T, client ctrlclient.WithWatch, ns string) *podWatch {
	t.Helper()
	w := &podWatch{client: client, ns: ns, known: map[types.UID]bool{}}
	open := func(list ctrlclient.ObjectList) watch.Interface {
		if err := client.List(t.Context(), list, ctrlclient.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		options := &ctrlclient.ListOptions{Namespace: ns, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
		stream, err := client.Watch(t.Context(), list, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Stop)
		return stream
	}
	var pods corev1.PodList
	var sets appsv1.ReplicaSetList
	w.pods, w.sets = open(&pods), open(&sets)
	for i := range pods.Items {
		w.known[pods.Items[i].UID] = true
	}
	for i := range sets.Items {
		w.known[sets.Items[i].UID] = true
	}
	return w
}

// check reads the events up to now. Its own objects mark the end: they come after everything before.
func (w *podWatch) check(t *testing.T, cluster string, replicas int32) {
	t.Helper()
	if want := int(replicas) + 1; len(w.known) != want {
		t.Errorf("%s had %d pods and ReplicaSets, want %d", cluster, len(w.known), want)
	}
	end := deployment(w.ns, "end", 0)
	set := &appsv1.ReplicaSet{ObjectMeta: end.ObjectMeta, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(0)), Selector: end.Spec.Selector, Template: end.Spec.Template}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "end"}, Spec: end.Spec.Template.Spec}
	createIn(t, w.client, set, pod)
	for _, stream := range []watch.Interface{w.pods, w.sets} {
		for event := range stream.ResultChan() {
			obj, ok := event.Object.(ctrlclient.Object)
			if !ok {
				t.Fatalf("the watch of %s ends with %v", cluster, event.Object)
			}
			if obj.GetName() == "end" {
				break
			}
			if event.Type == watch.Deleted || !w.known[obj.GetUID()] {
				t.Errorf("in %s, %T %s is %s", cluster, obj, obj.GetName(), fmt.Sprint(event.Type))
			}
		}
	}
}
