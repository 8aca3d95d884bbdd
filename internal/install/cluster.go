package install

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Cluster is the cluster on which a federation is installed.
type Cluster struct {
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterface
	mapper    meta.RESTMapper
}

// Connect connects to a cluster.
func Connect(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // API servers have flow control
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{objects: objects, discovery: found, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))}, nil
}

// Version returns the version of Kubernetes.
func (c *Cluster) Version() (string, error) {
	version, err := c.discovery.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("connecting to the cluster: %w", err)
	}
	return version.GitVersion, nil
}

// fieldManager owns the fields that are applied.
const fieldManager = "cellplane-install"

// apply applies an object. Fields that the API does not know are refused.
func (c *Cluster) apply(ctx context.Context, object *unstructured.Unstructured, options metav1.PatchOptions) error {
	resource, err := c.resource(object.GroupVersionKind(), object.GetNamespace())
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster does not know %s %s; is its operator installed?", object.GetAPIVersion(), object.GetKind())
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	force := true
	if options.FieldManager == "" {
		options.FieldManager = fieldManager
	}
	options.Force, options.FieldValidation = &force, metav1.FieldValidationStrict
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, data, options)
	return err
}

// delete deletes an object with its pods. One that does not exist is deleted.
func (c *Cluster) delete(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := c.resource(object.GroupVersionKind(), object.GetNamespace())
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	if err := resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// resource returns the client of a kind. A namespace counts only for namespaced kinds.
func (c *Cluster) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.objects.Resource(mapping.Resource), nil
	}
	return c.objects.Resource(mapping.Resource).Namespace(namespace), nil
}
