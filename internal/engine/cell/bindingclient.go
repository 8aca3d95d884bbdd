package cell

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/fleet"
)

// BindingClient reads and writes ResourceBindings and, for keys without a namespace, ClusterResourceBindings. The two
// kinds differ only in scope.
type BindingClient struct{ client rest.Interface }

// NewBindingClient returns a client for the bindings behind a configuration.
func NewBindingClient(config *rest.Config) (*BindingClient, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client, err := typedClient(config, workv1alpha2.GroupVersion, http)
	if err != nil {
		return nil, err
	}
	return &BindingClient{client}, nil
}

// Get reads a binding; it returns nil if there is none.
func (c *BindingClient) Get(ctx context.Context, key Key) (*workv1alpha2.ResourceBinding, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resource, _, answer := bindingResource(&workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace}})
	err := c.client.Get().NamespaceIfScoped(key.Namespace, key.Namespace != "").Resource(resource).Name(key.Name).Do(ctx).Into(answer)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading binding %s: %w", key, err)
	}
	return answered(answer), nil
}

// Create creates a binding.
func (c *BindingClient) Create(ctx context.Context, binding *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, error) {
	return c.write(ctx, "creating", "POST", binding)
}

// Update updates all but the status of a binding, unless it has changed since it was read.
func (c *BindingClient) Update(ctx context.Context, binding *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, error) {
	body := *binding
	// The managed fields of bindings are not used. An empty entry stops the API server from tracking them.
	body.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	return c.write(ctx, "updating", "PUT", &body, binding.Name)
}

func (c *BindingClient) updateStatus(ctx context.Context, binding *workv1alpha2.ResourceBinding) (*workv1alpha2.ResourceBinding, error) {
	return c.write(ctx, "updating the status of", "PUT", binding, binding.Name, "status")
}

func (c *BindingClient) write(ctx context.Context, doing, verb string, binding *workv1alpha2.ResourceBinding, path ...string) (*workv1alpha2.ResourceBinding, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resource, body, answer := bindingResource(binding)
	err := c.client.Verb(verb).NamespaceIfScoped(binding.Namespace, binding.Namespace != "").Resource(resource).Suffix(path...).
		Param("fieldManager", FieldManager).Body(body).Do(ctx).Into(answer)
	if err != nil {
		return nil, fmt.Errorf("%s binding %s: %w", doing, keyOf(binding), err)
	}
	return answered(answer), nil
}

// Delete deletes a binding under preconditions. It is not an error if there is none.
func (c *BindingClient) Delete(ctx context.Context, binding *workv1alpha2.ResourceBinding, conditions *metav1.Preconditions) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resource, _, _ := bindingResource(binding)
	err := c.client.Delete().NamespaceIfScoped(binding.Namespace, binding.Namespace != "").Resource(resource).Name(binding.Name).
		Body(&metav1.DeleteOptions{Preconditions: conditions}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting binding %s: %w", keyOf(binding), err)
	}
	return nil
}

// Labelled returns the source of the namespaced bindings with a label.
func (c *BindingClient) Labelled(selector string) fleet.Source {
	return typedSource(c.client, &part{resource: "resourcebindings", list: func() runtime.Object { return &workv1alpha2.ResourceBindingList{} }}, nil).Labelled(selector)
}

// ClusterLabelled returns the source of the cluster-scoped bindings with a label.
func (c *BindingClient) ClusterLabelled(selector string) fleet.Source {
	return typedSource(c.client, &part{resource: "clusterresourcebindings", list: func() runtime.Object { return &workv1alpha2.ClusterResourceBindingList{} }}, nil).Labelled(selector)
}

// bindingResource returns the resource of a binding, the body to send, and an object for the response.
func bindingResource(binding *workv1alpha2.ResourceBinding) (resource string, body, answer runtime.Object) {
	if binding.Namespace != "" {
		return "resourcebindings", binding, &workv1alpha2.ResourceBinding{}
	}
	return "clusterresourcebindings", (*workv1alpha2.ClusterResourceBinding)(binding), &workv1alpha2.ClusterResourceBinding{}
}

// answered returns the binding of a response, without its managed fields.
func answered(answer runtime.Object) *workv1alpha2.ResourceBinding {
	binding := bindingOf(answer)
	binding.ManagedFields = nil
	return binding
}
