package gateway_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/kubebin"
)

// testEvict evicts pods before they move, while they are frozen, while the request is on its way, and after. An eviction does not show the
// cell whether the pod is frozen.
func (f *movingFixture) testEvict() {
	f.stage("BeforeMove", func(f *movingFixture) {
		pod := f.newPod("evicted-before")
		must(f.t, f.evict(pod))
		if f.podIn(oldCell, pod) != nil {
			f.t.Error("the pod is still there")
		}
	})
	f.stage("DuringMove", func(f *movingFixture) {
		pod := f.newPod("evicted-during")
		object := f.podObject(pod)
		object.freeze()
		frozen := object.stored(oldCell).ModRevision
		answered := make(chan error, 1)
		go func() { answered <- f.evict(pod) }()
		f.waitHeld(1)
		object.copy()
		if object.stored(oldCell).ModRevision != frozen {
			f.t.Error("the frozen pod was written")
		}
		f.finishEviction(pod, answered)
	})
	f.stage("InFlight", func(f *movingFixture) {
		pod := f.newPod("evicted-in-flight")
		object := f.podObject(pod)
		server, err := f.planes[oldCell].Process(kubebin.KubeAPIServer)
		must(f.t, err)
		must(f.t, server.Pause())
		answered := make(chan error, 1)
		go func() { answered <- f.evict(pod) }()
		object.freeze()
		must(f.t, server.Resume())
		object.copy()
		f.finishEviction(pod, answered)
	})
	f.stage("AfterMove", func(f *movingFixture) {
		pod := f.newPod("evicted-after")
		f.podObject(pod).move()
		must(f.t, f.evict(pod))
		if f.podIn(newCell, pod) != nil {
			f.t.Error("the pod is still there")
		}
	})
}

// finishEviction ends the move of a pod that has been copied: the eviction goes to the new cell.
func (f *movingFixture) finishEviction(pod string, answered chan error) {
	f.t.Helper()
	object := f.podObject(pod)
	object.commit()
	committed := object.stored(oldCell).ModRevision
	object.activate()
	must(f.t, <-answered)
	if f.podIn(newCell, pod) != nil {
		f.t.Error("the pod is still there")
	}
	if object.stored(oldCell).ModRevision != committed {
		f.t.Error("the old cell got the eviction")
	}
}

// testBind assigns frozen pods to a node, in both forms that API servers have for that. A Binding does not show the cell whether the pod is frozen.
func (f *movingFixture) testBind() {
	core := f.clients[currentGateway].CoreV1()
	for form, bind := range map[string]func(context.Context, *corev1.Binding) error{
		"pods": func(ctx context.Context, b *corev1.Binding) error {
			return core.Pods(f.namespace).Bind(ctx, b, metav1.CreateOptions{})
		},
		"bindings": func(ctx context.Context, b *corev1.Binding) error {
			return core.RESTClient().Post().Namespace(f.namespace).Resource("bindings").Body(b).Do(ctx).Error()
		},
	} {
		f.stage(form, func(f *movingFixture) {
			pod := f.newPod("bound-" + form)
			object := f.podObject(pod)
			object.freeze()
			answered := make(chan error, 1)
			go func() {
				answered <- bind(f.t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: "some"}})
			}()
			f.waitHeld(1)
			object.copy()
			object.commit()
			object.activate()
			must(f.t, <-answered)
			if bound := f.podIn(newCell, pod); bound == nil || bound.Spec.NodeName != "some" {
				f.t.Errorf("the pod in the new cell is %+v", bound)
			}
		})
	}
}

// newPod creates a pod in the old cell whose name moves, and returns the name.
func (f *movingFixture) newPod(prefix string) string {
	f.t.Helper()
	name := f.movingName(prefix)
	f.createPod(name)
	return name
}

// createPod creates a pod in the old cell.
func (f *movingFixture) createPod(name string) {
	f.t.Helper()
	_, err := f.direct[oldCell].CoreV1().Pods(f.namespace).Create(f.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	must(f.t, err)
}

func (f *movingFixture) podObject(name string) *movingObject {
	return &movingObject{f: f, key: "pods/" + f.namespace + "/" + name}
}

func (f *movingFixture) podIn(cell int, name string) *corev1.Pod {
	f.t.Helper()
	pod, err := f.direct[cell].CoreV1().Pods(f.namespace).Get(f.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(f.t, err)
	return pod
}

func (f *movingFixture) evict(name string) error {
	return f.clients[currentGateway].PolicyV1().Evictions(f.namespace).Evict(f.t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace}})
}

// testWindowAfterMove scales Deployments down before and after they move: the window counts both. Neither a record of an earlier stay in
// the cell nor the removal of the annotation that tells of the move changes that.
func (f *movingFixture) testWindowAfterMove() {
	probe := f.movingName("window-probe")
	f.createScaled(probe)
	(&world{gateway: f.gateways[currentGateway]}).protect(f.t, "window-after-move", cellplanev1alpha1.ProtectionPolicySpec{
		ScaleDown: &cellplanev1alpha1.ScaleDownProtection{Window: &cellplanev1alpha1.ScaleDownWindow{Seconds: 3600, MaxDecrease: intstr.FromInt32(3)}},
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{
			APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}, Namespaces: []string{f.namespace}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"windowed": "yes"}},
		}},
	}, func(ctx context.Context) error { return f.scale(ctx, probe, 0, true) })
	for name, meanwhile := range map[string]func(f *movingFixture, name string){
		"nothing": func(*movingFixture, string) {},
		"a record of an earlier stay": func(f *movingFixture, name string) {
			record := f.record(oldCell, name)
			record.ObjectMeta = metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: record.Name}
			record.Data["drops"] = "[]"
			_, err := f.direct[newCell].CoreV1().ConfigMaps(names.SystemNamespace).Create(f.t.Context(), record, metav1.CreateOptions{})
			must(f.t, err)
		},
		"the annotation is removed": func(f *movingFixture, name string) {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, names.MovedFromAnnotation)
			_, err := f.through(currentGateway).Patch(f.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			must(f.t, err)
		},
	} {
		f.stage(name, func(f *movingFixture) {
			deployment := f.movingName("window-" + strings.ReplaceAll(name, " ", "-"))
			f.createScaled(deployment)
			must(f.t, f.scale(f.t.Context(), deployment, 8, false))
			f.object(deployment).move()
			meanwhile(f, deployment)
			if err := f.scale(f.t.Context(), deployment, 6, false); !apierrors.IsForbidden(err) {
				f.t.Errorf("removing 4 of 10 replicas where 3 are allowed: %v, want it refused", err)
			}
			must(f.t, f.scale(f.t.Context(), deployment, 7, false))
		})
	}
}

func (f *movingFixture) createScaled(name string) {
	f.t.Helper()
	object := newMovable(name, "0")
	object.Labels = map[string]string{"windowed": "yes"}
	object.Spec.Replicas = ptr.To[int32](10)
	_, err := f.in(oldCell).Create(f.t.Context(), object, metav1.CreateOptions{})
	must(f.t, err)
}

func (f *movingFixture) scale(ctx context.Context, name string, replicas int32, dryRun bool) error {
	return scaleTo(ctx, f.clients[currentGateway], f.namespace, name, replicas, dryRun)
}

// record returns the record of the decreases of a Deployment in a cell.
func (f *movingFixture) record(cell int, name string) *corev1.ConfigMap {
	f.t.Helper()
	list, err := f.direct[cell].CoreV1().ConfigMaps(names.SystemNamespace).List(f.t.Context(), metav1.ListOptions{})
	must(f.t, err)
	for i := range list.Items {
		if list.Items[i].Data["object"] == "deployments "+f.namespace+"/"+name {
			return &list.Items[i]
		}
	}
	f.t.Fatalf("%s has no record of %s", f.stores[cell].Cell, name)
	return nil
}
