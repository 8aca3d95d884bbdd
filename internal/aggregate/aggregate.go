// Package aggregate puts API servers of this machine behind the API server of a cluster that has no network of its own.
package aggregate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Service is the Service of an aggregated API server. It leads to a port of this machine.
type Service struct {
	Namespace, Name string
	// Port is where the server listens.
	Port int32
	// CA is that of its certificate, in PEM.
	CA []byte
}

// Host is the name of the server in its certificate.
func (s *Service) Host() string { return s.Name + "." + s.Namespace + ".svc" }

// This label marks what this package has made.
const (
	managedBy = "app.kubernetes.io/managed-by"
	manager   = "cellplane-aggregate"
)

// NewClient returns a client for what this package makes in a cluster.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// Register lets a cluster serve APIs with the server. It can be repeated.
func (s *Service) Register(ctx context.Context, cluster client.Client, versions ...schema.GroupVersion) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, cluster, service, func() error {
		service.Labels = map[string]string{managedBy: manager}
		service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, "localhost"
		return nil
	}); err != nil {
		return fmt.Errorf("registering the Service %s: %w", s.Name, err)
	}
	for _, gv := range versions {
		api := apiService(gv)
		if _, err := controllerutil.CreateOrUpdate(ctx, cluster, api, func() error {
			api.Labels = map[string]string{managedBy: manager}
			api.Spec = apiregistrationv1.APIServiceSpec{
				Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: s.CA,
				Service: &apiregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: &s.Port},
			}
			return nil
		}); err != nil {
			return fmt.Errorf("registering %s: %w", gv, err)
		}
	}
	return nil
}

// Withdraw removes what Register has made: the API server would ask nobody, and a cluster in which an API does not answer deletes no namespace.
func (s *Service) Withdraw(ctx context.Context, cluster client.Client, versions ...schema.GroupVersion) error {
	objects := []client.Object{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}}
	for _, gv := range versions {
		objects = append(objects, apiService(gv))
	}
	for _, object := range slices.Backward(objects) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && object.GetLabels()[managedBy] == manager {
			err = cluster.Delete(ctx, object)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("withdrawing %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// Available reports whether a cluster has reached the server of an API.
func Available(ctx context.Context, cluster client.Client, gv schema.GroupVersion) (bool, error) {
	api := apiService(gv)
	err := cluster.Get(ctx, client.ObjectKeyFromObject(api), api)
	return err == nil && slices.ContainsFunc(api.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
		return c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue
	}), err
}

func apiService(gv schema.GroupVersion) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group}}
}
