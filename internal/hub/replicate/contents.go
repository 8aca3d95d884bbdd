package replicate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/cellplane/cellplane/api/names"
)

const (
	// inspectTimeout bounds the search of one namespace.
	inspectTimeout = time.Minute
	// inspectAtOnce is how many kinds of a namespace are listed concurrently. An API server answers a list when its cache is up to date,
	// for which it may wait a tenth of a second.
	inspectAtOnce = 16
)

// pageSize bounds how many objects are listed in one request.
const pageSize = 500

// errNotEmpty means that a namespace has objects that are not copies.
var errNotEmpty = errors.New("the namespace is not empty")

// inspect lists the content of a namespace of the cell. It returns the copies if there is nothing else, and errNotEmpty
// otherwise. Events do not count: they expire. Nor does the CA of the gateway, which every namespace has: it is deleted with
// the namespace. Nor does what has moved to another cell: nobody may delete it here before it is swept, which needs no namespace. A kind
// that cannot be listed is an error.
func (s *session) inspect(ctx context.Context, namespace *Copy) ([]content, error) {
	resources, err := s.contentKinds(namespace)
	if err != nil {
		return nil, fmt.Errorf("discovering the kinds of the cell: %w", err)
	}
	found := make([][]content, len(resources))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(inspectAtOnce)
	for i, resource := range resources {
		group.Go(func() (err error) {
			found[i], err = s.inspectKind(ctx, resource, namespace.Name)
			return err
		})
	}
	return slices.Concat(found...), group.Wait()
}

// contentKinds returns the kinds that a namespace may have content of. Namespaces that terminate together share an answer of the cell:
// nothing is created in them any more, so kinds that the cell serves later have no content there.
func (s *session) contentKinds(namespace *Copy) ([]schema.GroupVersionResource, error) {
	s.discovering.Lock()
	defer s.discovering.Unlock()
	began := time.Now()
	if namespace.deleting() && s.terminates(namespace.Name, namespace.UID, began)-began.Sub(s.discovered) > finalizeAfter {
		return s.contents, nil
	}
	lists, err := s.discovery.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	var resources []schema.GroupVersionResource
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "create"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for i := range list.APIResources {
			resource := version.WithResource(list.APIResources[i].Name)
			if resource.Resource != "events" || (resource.Group != "" && resource.Group != "events.k8s.io") {
				resources = append(resources, resource)
			}
		}
	}
	s.contents, s.discovered = resources, began
	return resources, nil
}

// rootCA is the ConfigMap with the CA of the gateway. A controller of the federation publishes it in every namespace.
const rootCA = "kube-root-ca.crt"

// removeRootCA deletes the ConfigMap with the CA of the gateway from a namespace that is otherwise empty.
func (c *cell) removeRootCA(ctx context.Context, namespace string) error {
	err := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).Delete(ctx, rootCA, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing ConfigMap %s from namespace %s: %w", rootCA, namespace, err)
	}
	return nil
}

// content is a copy in a namespace.
type content struct {
	resource schema.GroupVersionResource
	name     string
	uid      types.UID
}

// inspectKind lists the objects of one kind.
func (c *cell) inspectKind(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]content, error) {
	var copies []content
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		list, err := c.metadata.Resource(resource).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
			return nil, nil // the kind is gone, and its objects with it
		case err != nil:
			return nil, fmt.Errorf("listing %s in namespace %s: %w", resource.GroupResource(), namespace, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if resource.Group == "" && resource.Resource == "configmaps" && object.Name == rootCA || object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated {
				continue
			}
			if SourceUID(object) == "" {
				return nil, fmt.Errorf("%w: it still has %s %s", errNotEmpty, resource.GroupResource(), object.Name)
			}
			copies = append(copies, content{resource: resource, name: object.Name, uid: object.UID})
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return copies, nil
		}
	}
}

// removeCopies deletes the copies in a namespace that will be recreated with them.
func (c *cell) removeCopies(ctx context.Context, namespace string, copies []content) error {
	for _, object := range copies {
		err := c.metadata.Resource(object.resource).Namespace(namespace).Delete(ctx, object.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing the copy of %s %s: %w", object.resource.GroupResource(), object.name, err)
		}
	}
	return nil
}

// finalize removes the finalizer of a namespace, as the namespace controller of a cluster does.
func (c *cell) finalize(ctx context.Context, have *Copy) error {
	client := c.client.Resource(namespaces)
	namespace, err := client.Get(ctx, have.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if namespace.GetUID() != have.UID || namespace.GetDeletionTimestamp() == nil {
		return apierrors.NewConflict(namespaces.GroupResource(), have.Name, fmt.Errorf("the namespace has been replaced or is not terminating"))
	}
	finalizers, _, _ := unstructured.NestedStringSlice(namespace.Object, "spec", "finalizers")
	finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == string(corev1.FinalizerKubernetes) })
	if err := unstructured.SetNestedStringSlice(namespace.Object, finalizers, "spec", "finalizers"); err != nil {
		return err
	}
	_, err = client.Update(ctx, namespace, metav1.UpdateOptions{FieldManager: fieldManager}, "finalize")
	return err
}
