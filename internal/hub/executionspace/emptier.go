package executionspace

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// emptier finishes the deletion of a namespace, as a namespace controller does. It is needed because none may run against
// the hub.
type emptier struct {
	client   kubernetes.Interface
	metadata metadata.Interface
}

func newEmptier(config *rest.Config) (*emptier, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // deprecated kinds have to be deleted, too
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &emptier{client: client, metadata: objects}, nil
}

// finalize deletes the content of the namespace, and then the namespace. It reports whether that is finished.
func (e *emptier) finalize(ctx context.Context, name string) (gone bool, err error) {
	kinds, err := e.kinds()
	if err != nil {
		return false, err
	}
	left := false
	for _, kind := range kinds {
		empty, err := e.empty(ctx, kind, name)
		if err != nil {
			return false, fmt.Errorf("emptying namespace %s of %s: %w", name, kind.Resource, err)
		}
		left = left || !empty
	}
	if left {
		return false, nil
	}
	final, err := e.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	final.Spec.Finalizers = slices.DeleteFunc(final.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = e.client.CoreV1().Namespaces().Finalize(ctx, final, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("finalizing namespace %s: %w", name, err)
	}
	return true, nil
}

// kinds returns all namespaced kinds. It must be complete: objects of a missing kind would stay forever.
func (e *emptier) kinds() ([]schema.GroupVersionResource, error) {
	lists, err := e.client.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		return nil, fmt.Errorf("discovering the namespaced kinds of the hub: %w", err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "deletecollection"}}, lists)
	found, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return nil, err
	}
	kinds := make([]schema.GroupVersionResource, 0, len(found))
	for kind := range found {
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// empty deletes all objects of a kind and reports whether there were none.
func (e *emptier) empty(ctx context.Context, kind schema.GroupVersionResource, namespace string) (bool, error) {
	objects := e.metadata.Resource(kind).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if len(list.Items) == 0 {
		return true, nil
	}
	return false, objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}
