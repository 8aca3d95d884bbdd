package scheduling_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// world is a namespace with clusters of its own. Placements select them by a label.
type world struct {
	*testing.T
	client   ctrlclient.WithWatch
	ns       string
	clusters []string
}

// worldLabel is the namespace of the test that a cluster belongs to.
const worldLabel = "test.example.io/world"

// newWorld creates clusters named after the namespace, each with a capacity of 10 CPUs and 100 pods.
func newWorld(t *testing.T, clusters ...string) *world {
	t.Helper()
	return newWorldIn(t, cell, clusters...)
}

func newWorldIn(t *testing.T, client ctrlclient.WithWatch, clusters ...string) *world {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, client: client, ns: ns.Name}
	for _, name := range clusters {
		w.join(name)
	}
	t.Cleanup(func() {
		for _, name := range w.clusters {
			_ = client.Delete(context.Background(), &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.full(name)}})
		}
	})
	return w
}

// full returns the full name of a cluster.
func (w *world) full(cluster string) string { return w.ns + "-" + cluster }

func (w *world) join(name string, change ...func(*clusterv1alpha1.Cluster)) {
	w.Helper()
	cluster := &clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: w.full(name), Labels: map[string]string{worldLabel: w.ns, "name": name}},
		Spec:       clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Pull, Region: "region-" + w.ns + "-" + name},
	}
	for _, f := range change {
		f(cluster)
	}
	w.create(cluster)
	w.clusters = append(w.clusters, name)
	w.setCapacity(name, 10)
}

// capacity sets the free CPUs of a cluster and waits until the scheduler knows.
func (w *world) capacity(name string, cpus int64) {
	w.Helper()
	w.setCapacity(name, cpus)
	w.untilSeen(name)
}

// untilSeen waits until the scheduler has seen all earlier changes of a cluster: a ConfigMap selects the cluster by a
// label that is set after them.
func (w *world) untilSeen(name string) {
	w.Helper()
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, GenerateName: "seen-"}}
	w.create(mark)
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: mark.Name}}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap", Name: mark.Name}}
	p.Spec.Placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"seen": mark.Name}}}
	w.create(p)
	w.editCluster(name, false, func(c *clusterv1alpha1.Cluster) { metav1.SetMetaDataLabel(&c.ObjectMeta, "seen", mark.Name) })
	binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: mark.Name + "-configmap"}}
	testenv.Eventually(w, "the scheduler sees the change of "+name, func(ctx context.Context) (bool, error) {
		err := w.client.Get(ctx, ctrlclient.ObjectKeyFromObject(binding), binding)
		return len(binding.Spec.Clusters) == 1, ctrlclient.IgnoreNotFound(err)
	})
}

func (w *world) setCapacity(name string, cpus int64) {
	w.Helper()
	w.editCluster(name, true, func(c *clusterv1alpha1.Cluster) {
		c.Status.ResourceSummary = &clusterv1alpha1.ResourceSummary{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), corev1.ResourcePods: *resource.NewQuantity(100, resource.DecimalSI),
			corev1.ResourceMemory: resource.MustParse("1Ti"),
		}}
	})
}

func (w *world) editCluster(name string, status bool, change func(*clusterv1alpha1.Cluster)) {
	w.Helper()
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.full(name)}}
	w.edit(cluster, status, func() { change(cluster) })
}

// taint sets the taints of a cluster, none to remove them.
func (w *world) taint(name string, taints ...corev1.Taint) {
	w.Helper()
	w.editCluster(name, false, func(c *clusterv1alpha1.Cluster) { c.Spec.Taints = taints })
}

func noExecute(key string) corev1.Taint {
	now := metav1.Now()
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now}
}

func (w *world) create(objects ...ctrlclient.Object) {
	w.Helper()
	for _, obj := range objects {
		if err := w.client.Create(w.Context(), obj); err != nil {
			w.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
		}
	}
}

// edit updates an object or its status and retries on conflicts.
func (w *world) edit(obj ctrlclient.Object, status bool, change func()) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("%T %s can be changed", obj, obj.GetName()), func(ctx context.Context) (bool, error) {
		if err := w.client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		change()
		var err error
		if status {
			err = w.client.Status().Update(ctx, obj)
		} else {
			err = w.client.Update(ctx, obj)
		}
		return err == nil, err
	})
}

// policy propagates the Deployments of the namespace, by default to all clusters of the world.
func (w *world) policy(change ...func(*policyv1alpha1.PropagationPolicy)) *policyv1alpha1.PropagationPolicy {
	w.Helper()
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "policy"}}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}}
	p.Spec.Placement.ClusterAffinity = w.affinity()
	for _, f := range change {
		f(p)
	}
	w.create(p)
	return p
}

func (w *world) editPolicy(change func(*policyv1alpha1.PropagationPolicy)) {
	w.Helper()
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "policy"}}
	w.edit(p, false, func() { change(p) })
}

// affinity selects clusters of the world, all if none is named.
func (w *world) affinity(clusters ...string) *policyv1alpha1.ClusterAffinity {
	a := &policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{worldLabel: w.ns}}}
	if len(clusters) > 0 {
		a.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: clusters}}
	}
	return a
}

func aggregated(p *policyv1alpha1.PropagationPolicy) {
	p.Spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceAggregated,
	}
}

func oneCluster(p *policyv1alpha1.PropagationPolicy) {
	p.Spec.Placement.SpreadConstraints = []policyv1alpha1.SpreadConstraint{{SpreadByField: policyv1alpha1.SpreadByFieldCluster, MinGroups: 1, MaxGroups: 1}}
}

// deployment returns a Deployment whose replicas request one CPU each.
func (w *world) deployment(name string, replicas int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app": name}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "registry.example/app:1",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			}}}},
		},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func (w *world) binding(name string) *workv1alpha2.ResourceBinding {
	return &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name + "-deployment"}}
}

func (w *world) editBinding(name string, change func(*workv1alpha2.ResourceBinding)) {
	w.Helper()
	b := w.binding(name)
	w.edit(b, false, func() { change(b) })
}

// until waits until the binding of a Deployment satisfies a condition.
func (w *world) until(what, name string, ok func(*workv1alpha2.ResourceBinding) bool) *workv1alpha2.ResourceBinding {
	w.Helper()
	b := w.binding(name)
	testenv.Eventually(w, what, func(ctx context.Context) (bool, error) {
		if err := w.client.Get(ctx, ctrlclient.ObjectKeyFromObject(b), b); err != nil {
			return false, err
		}
		if !ok(b) {
			return false, fmt.Errorf("it is in %s with tasks %+v, status %+v", w.placed(b), b.Spec.GracefulEvictionTasks, b.Status)
		}
		return true, nil
	})
	return b
}

// placed formats the clusters of a binding, like "a:2 b".
func (w *world) placed(b *workv1alpha2.ResourceBinding) string {
	var parts []string
	for _, target := range b.Spec.Clusters {
		part := strings.TrimPrefix(target.Name, w.ns+"-")
		if target.Replicas > 0 {
			part += fmt.Sprintf(":%d", target.Replicas)
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// untilPlaced waits until a Deployment is placed as given.
func (w *world) untilPlaced(name, want string) *workv1alpha2.ResourceBinding {
	w.Helper()
	return w.until(fmt.Sprintf("%s is in %q", name, want), name, func(b *workv1alpha2.ResourceBinding) bool { return w.placed(b) == want })
}

// untilScheduled waits until the condition Scheduled has a reason for the current generation.
func (w *world) untilScheduled(name, reason string) *workv1alpha2.ResourceBinding {
	w.Helper()
	return w.until("the reason is "+reason, name, func(b *workv1alpha2.ResourceBinding) bool {
		condition := meta.FindStatusCondition(b.Status.Conditions, names.BindingScheduled)
		return condition != nil && condition.Reason == reason && b.Status.SchedulerObservedGeneration == b.Generation
	})
}

func (w *world) work(cluster, name string) *workv1alpha1.Work {
	return &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(w.full(cluster)), Name: names.WorkName("Deployment", w.ns, name)}}
}

// untilWork waits for the Work of a Deployment in a cluster.
func (w *world) untilWork(cluster, name string) *workv1alpha1.Work {
	w.Helper()
	work := w.work(cluster, name)
	testenv.Eventually(w, "the Work is in "+cluster, func(ctx context.Context) (bool, error) {
		err := w.client.Get(ctx, ctrlclient.ObjectKeyFromObject(work), work)
		return err == nil, err
	})
	return work
}

// untilNoWork waits until the Work is being deleted, and removes its finalizer as an agent does.
func (w *world) untilNoWork(cluster, name string) {
	w.Helper()
	work := w.work(cluster, name)
	testenv.Eventually(w, "the Work is gone from "+cluster, func(ctx context.Context) (bool, error) {
		err := w.client.Get(ctx, ctrlclient.ObjectKeyFromObject(work), work)
		if err != nil || work.DeletionTimestamp == nil {
			return apierrors.IsNotFound(err), err
		}
		work.Finalizers = nil
		return false, w.client.Update(ctx, work)
	})
}

// report updates the status of a Work as an agent does.
func (w *world) report(cluster, name string, health workv1alpha1.ResourceHealth, status string) {
	w.Helper()
	work := w.untilWork(cluster, name)
	w.edit(work, true, func() {
		meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{Type: names.WorkApplied, Status: metav1.ConditionTrue, Reason: "Applied"})
		work.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{
			Identifier: workv1alpha1.ResourceIdentifier{Ordinal: 0, Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: w.ns, Name: name},
			Health:     health, Status: &runtime.RawExtension{Raw: []byte(status)},
		}}
	})
}

// untilEvent waits for an event about the binding of a Deployment.
func (w *world) untilEvent(name, reason string) *corev1.Event {
	w.Helper()
	var found *corev1.Event
	testenv.Eventually(w, "there is an event "+reason, func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		if err := w.client.List(ctx, &list, ctrlclient.InNamespace(w.ns)); err != nil {
			return false, err
		}
		i := slices.IndexFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.Name == name+"-deployment" })
		if i < 0 {
			return false, nil
		}
		found = &list.Items[i]
		return true, nil
	})
	return found
}

func keyOf(obj ctrlclient.Object) ctrlclient.ObjectKey { return ctrlclient.ObjectKeyFromObject(obj) }

// manifestOf returns the manifest of a Work.
func manifestOf(t *testing.T, work *workv1alpha1.Work) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(work.Spec.Workload.Manifests[0].Raw); err != nil {
		t.Fatal(err)
	}
	return obj
}
