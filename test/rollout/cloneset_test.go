package rollout_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cloneSets is the definition of CloneSets.
func cloneSets() *apiextensionsv1.CustomResourceDefinition {
	return definition("apps.kruise.io", "v1alpha1", "CloneSet")
}

// definition returns the definition of a kind with any fields.
func definition(group, version, kind string) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: singular + "s", Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
}

// cloneSet is a CloneSet whose replicas are divided among the members.
type cloneSet struct{ workload }

const cloneSetVersion = "apps.kruise.io/v1alpha1"

func (c *cloneSet) ref() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": cloneSetVersion, "kind": "CloneSet"}}
	obj.SetNamespace(c.ns)
	obj.SetName("web")
	return obj
}

func newCloneSet(t *testing.T, strategy map[string]any) *cloneSet {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	c := &cloneSet{workload{t: t}}
	c.create(ns)
	c.ns = ns.Name
	c.control()
	policy := c.divided("CloneSet")
	policy.Spec.ResourceSelectors[0].APIVersion = cloneSetVersion
	c.create(policy)
	obj := c.ref()
	obj.Object["spec"] = map[string]any{
		"replicas": int64(9), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "updateStrategy": strategy,
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": image(1)}}},
		},
	}
	testenv.Eventually(t, "the cell serves CloneSets", func(ctx context.Context) (bool, error) {
		err := cell.Create(ctx, obj)
		return err == nil, err
	})
	return c
}

// edit changes the template.
func (c *cloneSet) edit(version int, strategy map[string]any) {
	c.t.Helper()
	testenv.Eventually(c.t, "the template can be changed", func(ctx context.Context) (bool, error) {
		obj := c.ref()
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		spec := obj.Object["spec"].(map[string]any)
		spec["updateStrategy"] = strategy
		container := spec["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
		container["image"] = image(version)
		err := cell.Update(ctx, obj)
		return err == nil, err
	})
}

// finished waits until so many of nine pods have a version, all are available, and the template says so.
func (c *cloneSet) finished(version int, updated int64) {
	c.t.Helper()
	testenv.Eventually(c.t, fmt.Sprintf("%d pods have version %d, and the template says so", updated, version), func(ctx context.Context) (bool, error) {
		obj := c.ref()
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		have := 0
		for name := range members {
			have += c.inMember(name)[image(version)]
		}
		status, _ := obj.Object["status"].(map[string]any)
		done := int64(have) == updated && status["observedGeneration"] == obj.GetGeneration() && status["replicas"] == int64(9) && status["updatedReplicas"] == updated && status["availableReplicas"] == int64(9)
		return done, fmt.Errorf("%d pods have it; %v", have, status)
	})
}

// control runs a controller of CloneSets for the namespace in each member: the model of that of OpenKruise, with real objects and pods. Some members update pods in
// place, others recreate them. It ends with the test.
func (c *cloneSet) control() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	c.t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	for seed, name := range slices.Sorted(maps.Keys(members)) {
		m := &cloneSetController{
			set: c.ref(), spec: cloneSetSpec, status: cloneSetStatus,
			member: members[name], model: controllermodel.NewCloneSet(name == "member1"), random: rand.New(rand.NewPCG(1, uint64(seed))), pods: map[int]controllermodel.Pod{},
		}
		wait.Go(func() { m.run(ctx) })
	}
}

// cloneSetSpec returns what a CloneSet asks for, nil if it cannot be read.
func cloneSetSpec(obj *unstructured.Unstructured) *controllermodel.Spec {
	told := rollout.CopyOf(obj)
	if told == nil {
		return nil
	}
	c := &told.Command
	return &controllermodel.Spec{Replicas: c.Replicas, Surge: c.Surge, Unavailable: c.Unavailable, Partition: c.Partition, Paused: c.Paused}
}

func cloneSetStatus(generation int64, status controllermodel.Status) map[string]any {
	return map[string]any{
		"observedGeneration": generation, "replicas": int64(status.Pods), "availableReplicas": int64(status.Available), "updatedReplicas": int64(status.Updated),
	}
}

// cloneSetController is the controller of one workload in one member. It does what that of CloneSets does.
type cloneSetController struct {
	set        *unstructured.Unstructured
	spec       func(*unstructured.Unstructured) *controllermodel.Spec
	status     func(generation int64, status controllermodel.Status) map[string]any
	member     ctrlclient.Client
	model      *controllermodel.CloneSet
	random     *rand.Rand
	generation int64 // of the object that the model has
	pods       map[int]controllermodel.Pod
	written    controllermodel.Status
}

// run lets the controller do one thing at a time. The next follows when the API server has what it decided.
func (m *cloneSetController) run(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if m.read(ctx) && m.writePods(ctx) && m.writeStatus(ctx) {
			m.model.Step(m.random)
		}
	}
}

// read gives the model the spec of the object.
func (m *cloneSetController) read(ctx context.Context) bool {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": m.set.GetAPIVersion(), "kind": m.set.GetKind()}}
	if m.member.Get(ctx, ctrlclient.ObjectKeyFromObject(m.set), obj) != nil {
		return false
	}
	m.set = obj
	if obj.GetGeneration() == m.generation {
		return true
	}
	spec := m.spec(obj)
	if spec == nil {
		return false
	}
	spec.Revision, m.generation = imageOf(obj), obj.GetGeneration()
	m.model.Apply(*spec)
	return true
}

func imageOf(obj *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)["image"].(string)
}

// writePods makes the pods those of the model.
func (m *cloneSetController) writePods(ctx context.Context) bool {
	wanted := map[int]controllermodel.Pod{}
	for _, pod := range m.model.Pods() {
		wanted[pod.ID] = pod
	}
	for id := range m.pods {
		if _, stays := wanted[id]; !stays {
			if err := m.member.Delete(ctx, m.pod(id), ctrlclient.GracePeriodSeconds(0)); ctrlclient.IgnoreNotFound(err) != nil {
				return false
			}
			delete(m.pods, id)
		}
	}
	for id, pod := range wanted {
		if has, exists := m.pods[id]; exists && has == pod {
			continue
		}
		if m.writePod(ctx, pod) != nil {
			return false
		}
		m.pods[id] = pod
	}
	return true
}

func (m *cloneSetController) pod(id int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.set.GetNamespace(), Name: fmt.Sprintf("web-%d", id)}}
}

func (m *cloneSetController) writePod(ctx context.Context, wanted controllermodel.Pod) error {
	pod := m.pod(wanted.ID)
	err := m.member.Get(ctx, ctrlclient.ObjectKeyFromObject(pod), pod)
	if apierrors.IsNotFound(err) {
		pod.Labels = map[string]string{"app": "web"}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(m.set, m.set.GroupVersionKind())}
		// No node takes it: the controller reports what its kubelet would.
		pod.Spec = corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "c", Image: wanted.Revision}}}
		err = m.member.Create(ctx, pod)
	}
	if err != nil {
		return err
	}
	ready := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[wanted.Available]
	if len(pod.Status.Conditions) == 0 || pod.Status.Conditions[0].Status != ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
		if err := m.member.Status().Update(ctx, pod); err != nil {
			return err
		}
	}
	marked := fmt.Sprint(wanted.Marked)
	if pod.Spec.Containers[0].Image == wanted.Revision && pod.Labels["apps.kruise.io/specified-delete"] == marked {
		return nil
	}
	pod.Spec.Containers[0].Image, pod.Labels["apps.kruise.io/specified-delete"] = wanted.Revision, marked
	return m.member.Update(ctx, pod)
}

func (m *cloneSetController) writeStatus(ctx context.Context) bool {
	status := m.model.Status()
	if status.ObservedGeneration != m.model.Generation() || status == m.written {
		return true
	}
	m.set.Object["status"] = m.status(m.generation, status)
	if m.member.Status().Update(ctx, m.set) != nil {
		return false
	}
	m.written = status
	return true
}

// The bounds of a CloneSet, its partition too, hold for all members together. Percentages are of all replicas, rounded once and as OpenKruise does: of nine
// replicas, 10 % of surge are one, 20 % unavailable are one since there is surge, and 40 % that keep their version are four.
func TestCloneSetRollout(t *testing.T) {
	startEngine(t)
	for _, client := range members {
		if err := client.Create(t.Context(), cloneSets()); ctrlclient.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	if err := cell.Create(t.Context(), cloneSets()); ctrlclient.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	strategy := func(partition any, paused bool) map[string]any {
		return map[string]any{"maxSurge": "10%", "maxUnavailable": "20%", "partition": partition, "paused": paused}
	}
	c := newCloneSet(t, strategy("40%", false))
	c.finished(1, 9)
	pods := watchPods(t, c.ns, 0, 8, 10)

	pods.allowUpdated(image(2), 5)
	c.edit(2, strategy("40%", false))
	c.finished(2, 5)
	pods.held("an update with a partition")

	pods.allowUpdated(image(3), 0)
	c.edit(3, strategy(int64(0), true))
	testenv.Eventually(t, "all members wait because it is paused", func(ctx context.Context) (bool, error) {
		binding := &workv1alpha2.ResourceBinding{}
		if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: c.ns, Name: "web-cloneset"}, binding); err != nil {
			return false, err
		}
		waits := binding.Annotations[names.RolloutWaitsAnnotation]
		return strings.Count(waits, "the rollout is paused") == len(members), fmt.Errorf("they wait: %s", waits)
	})
	pods.allowUpdated(image(3), 9)
	c.edit(3, strategy(int64(0), false))
	c.finished(3, 9)
	pods.held("an update that was paused")
}
