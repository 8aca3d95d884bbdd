package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/rollout"
)

// lookTimeout is how long a member may take to list the pods of one workload.
const lookTimeout = 5 * time.Second

// errChanged means that the object in the member is newer than what was observed. What is new is observed soon.
var errChanged = errors.New("it has changed meanwhile")

// Look reads how far the workload of a Work is by its pods. It is for a workload whose status does not tell. The result is of the observed version of the object;
// if it shows a workload at rest, it is kept for as long as that is the newest.
func (e *Controller) Look(ctx context.Context, work *cell.Work) (*rollout.Live, error) {
	q := e.queueOf(work.Cluster)
	if len(work.Objects) != 1 {
		return nil, fmt.Errorf("the Work %s has %d objects, not one", work.Key, len(work.Objects))
	}
	object := &work.Objects[0]
	observed, _, _ := q.observed(object)
	if observed == nil || observed.Rollout == nil {
		return nil, errors.New("it was not observed yet")
	}
	if live := observed.looked.Load(); live != nil {
		return live, nil
	}
	member, err := q.current()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	obj, pods, err := withPods(ctx, member, object)
	if err != nil {
		return nil, err
	}
	if obj.GetUID() != observed.UID || cell.Version(obj.GetResourceVersion()) != observed.version {
		return nil, errChanged
	}
	live := observed.Rollout.WithPods(obj, pods)
	if live.Observation.Remaining == 0 && live.Observation.Terminating == 0 {
		observed.looked.Store(live)
	}
	return live, nil
}

// withPods reads an object and then the pods that it controls.
func withPods(ctx context.Context, member *fleet.Member, object *cell.Object) (*unstructured.Unstructured, []*unstructured.Unstructured, error) {
	client, _, err := member.Resource(ctx, object.GroupVersionKind, object.Key.Namespace)
	if err != nil {
		return nil, nil, err
	}
	obj, err := client.Get(ctx, object.Key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	var selector metav1.LabelSelector
	labels, _, err := unstructured.NestedMap(obj.Object, "spec", "selector")
	if err != nil {
		return nil, nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(labels, &selector); err != nil {
		return nil, nil, fmt.Errorf("reading spec.selector of %s: %w", object, err)
	}
	if client, _, err = member.Resource(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), object.Key.Namespace); err != nil {
		return nil, nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&selector)})
	if err != nil {
		return nil, nil, err
	}
	var pods []*unstructured.Unstructured
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.UID == obj.GetUID() {
			pods = append(pods, &list.Items[i])
		}
	}
	return obj, pods, nil
}
