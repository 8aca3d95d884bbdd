// Package clonesettest runs controllers of CloneSets in real members: the model of that of OpenKruise, with real objects and pods. No node takes the
// pods: the controller reports what a kubelet would.
package clonesettest

import (
	"context"
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
)

// Controller is the controller of one workload in one member.
type Controller struct {
	Member client.Client
	Model  *controllermodel.CloneSet
	// Random decides what it does next. Without it, everything that can happen does.
	Random *rand.Rand
	// Spec returns what the workload asks for, nil if it cannot be read, and Status what its status says. They are those of CloneSets if nil.
	Spec   func(*unstructured.Unstructured) *controllermodel.Spec
	Status func(generation int64, status controllermodel.Status) map[string]any
	// Revision names the pod template. It is the image of the pods.
	Revision func(*unstructured.Unstructured) string

	set        *unstructured.Unstructured
	generation int64 // of the object that the model has
	pods       map[int]controllermodel.Pod
	written    controllermodel.Status
}

// Pass lets the controller do one thing, after its API server has what it decided before. The object is the workload as it is now. A request that fails
// is repeated by the next pass.
func (c *Controller) Pass(ctx context.Context, obj *unstructured.Unstructured) {
	if !c.read(obj) || !c.writePods(ctx) || !c.writeStatus(ctx) {
		return
	}
	if c.Random == nil {
		c.Model.Run()
		return
	}
	c.Model.Step(c.Random)
}

// read gives the model the spec of the object.
func (c *Controller) read(obj *unstructured.Unstructured) bool {
	c.set = obj
	if obj.GetGeneration() == c.generation {
		return true
	}
	read := c.Spec
	if read == nil {
		read = specOf
	}
	spec := read(obj)
	if spec == nil {
		return false
	}
	spec.Revision, c.generation = c.Revision(obj), obj.GetGeneration()
	c.Model.Apply(*spec)
	return true
}

func specOf(obj *unstructured.Unstructured) *controllermodel.Spec {
	told := rollout.CopyOf(obj)
	if told == nil {
		return nil
	}
	c := &told.Command
	return &controllermodel.Spec{Replicas: c.Replicas, Surge: c.Surge, Unavailable: c.Unavailable, Partition: c.Partition, Paused: c.Paused}
}

func statusOf(generation int64, status controllermodel.Status) map[string]any {
	return map[string]any{
		"observedGeneration": generation, "replicas": int64(status.Pods), "availableReplicas": int64(status.Available), "updatedReplicas": int64(status.Updated),
	}
}

// writePods makes the pods those of the model.
func (c *Controller) writePods(ctx context.Context) bool {
	wanted := map[int]controllermodel.Pod{}
	for _, pod := range c.Model.Pods() {
		wanted[pod.ID] = pod
	}
	for id := range c.pods {
		if _, stays := wanted[id]; !stays {
			if err := c.Member.Delete(ctx, c.pod(id), client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return false
			}
			delete(c.pods, id)
		}
	}
	for id, pod := range wanted {
		if has, exists := c.pods[id]; exists && has == pod {
			continue
		}
		if c.writePod(ctx, pod) != nil {
			return false
		}
		if c.pods == nil {
			c.pods = map[int]controllermodel.Pod{}
		}
		c.pods[id] = pod
	}
	return true
}

func (c *Controller) pod(id int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.set.GetNamespace(), Name: fmt.Sprintf("%s-%d", c.set.GetName(), id)}}
}

func (c *Controller) writePod(ctx context.Context, wanted controllermodel.Pod) error {
	pod := c.pod(wanted.ID)
	err := c.Member.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	if apierrors.IsNotFound(err) {
		pod.Labels = map[string]string{"app": c.set.GetName()}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c.set, c.set.GroupVersionKind())}
		pod.Spec = corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "c", Image: wanted.Revision}}}
		err = c.Member.Create(ctx, pod)
	}
	if err != nil {
		return err
	}
	ready := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[wanted.Available]
	if len(pod.Status.Conditions) == 0 || pod.Status.Conditions[0].Status != ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
		if err := c.Member.Status().Update(ctx, pod); err != nil {
			return err
		}
	}
	marked := fmt.Sprint(wanted.Marked)
	if pod.Spec.Containers[0].Image == wanted.Revision && pod.Labels["apps.kruise.io/specified-delete"] == marked {
		return nil
	}
	pod.Spec.Containers[0].Image, pod.Labels["apps.kruise.io/specified-delete"] = wanted.Revision, marked
	return c.Member.Update(ctx, pod)
}

func (c *Controller) writeStatus(ctx context.Context) bool {
	status := c.Model.Status()
	if status.ObservedGeneration != c.Model.Generation() || status == c.written {
		return true
	}
	written := c.Status
	if written == nil {
		written = statusOf
	}
	c.set.Object["status"] = written(c.generation, status)
	if c.Member.Status().Update(ctx, c.set) != nil {
		return false
	}
	c.written = status
	return true
}
