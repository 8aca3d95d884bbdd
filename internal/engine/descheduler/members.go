package descheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
)

// InMembers returns a function that counts pods in the members. It lists only pods without a node.
func InMembers(c *cell.Cell, member func(cluster string) (*fleet.Member, error)) func(context.Context, string, *workv1alpha2.ResourceBinding, time.Duration) (int32, error) {
	return func(ctx context.Context, cluster string, binding *workv1alpha2.ResourceBinding, age time.Duration) (int32, error) {
		selector, err := selectorOf(c, &binding.Spec.Resource)
		if err != nil || selector == "" {
			return 0, err
		}
		at, err := member(cluster)
		if err == nil {
			err = at.Broken() // do not wait for a member that is known to be unreachable
		}
		if err != nil {
			return 0, err
		}
		list, err := withoutNode(ctx, at, binding.Spec.Resource.Namespace, selector)
		if err != nil {
			at.Report(err)
			return 0, fmt.Errorf("listing pods without a node in cluster %s: %w", cluster, err)
		}
		count := int32(0)
		for i := range list.Items {
			pod := &corev1.Pod{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, pod) == nil && unschedulableFor(pod, age, time.Now()) {
				count++
			}
		}
		return count, nil
	}
}

// listTimeout bounds the list of pods in one member: other workloads wait for it.
const listTimeout = 10 * time.Second

// withoutNode lists the pods that match a selector and have no node.
func withoutNode(ctx context.Context, member *fleet.Member, namespace, selector string) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	pods, _, err := member.Resource(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
	if err != nil {
		return nil, err
	}
	return pods.List(ctx, metav1.ListOptions{LabelSelector: selector, FieldSelector: "spec.nodeName=", Limit: 1000})
}

// unschedulableFor reports whether a pod has been unschedulable for at least the given time.
func unschedulableFor(pod *corev1.Pod, age time.Duration, now time.Time) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && now.Sub(c.LastTransitionTime.Time) >= age
		}
	}
	return false
}

// selectorOf returns the selector of a workload's pods, empty if it has none.
func selectorOf(c *cell.Cell, ref *workv1alpha2.ObjectReference) (string, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return "", err
	}
	template := c.Templates.Get(cell.TemplateKey{GroupVersionKind: gv.WithKind(ref.Kind), Key: cell.Key{Namespace: ref.Namespace, Name: ref.Name}})
	if template == nil {
		return "", nil
	}
	obj, err := template.Object()
	if err != nil {
		return "", err
	}
	content, found, err := unstructured.NestedMap(obj.Object, "spec", "selector")
	if !found || err != nil {
		return "", err
	}
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, selector); err != nil {
		return "", err
	}
	return metav1.FormatLabelSelector(selector), nil
}
