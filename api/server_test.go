package api_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/testenv"
)

// server is the shared API server with a second copy of all definitions in other groups, so that controllers of
// other tests do not see the objects of these tests.
type server struct {
	client    dynamic.Interface
	suffix    string
	resources map[schema.GroupKind]resource
	namespace string
}

type resource struct {
	schema.GroupVersionResource
	namespaced, hasStatus bool
}

func newServer(t *testing.T) *server {
	t.Helper()
	shared := testenv.SharedAPIServer(t)
	config := shared.RESTConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{client: client, suffix: ".t" + rand.String(8) + ".test", resources: map[schema.GroupKind]resource{}, namespace: shared.Namespace(t)}

	all := crds.All()
	t.Cleanup(func() {
		for _, definition := range all {
			err := definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(context.Background(), definition.Name+s.suffix, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	var installs sync.WaitGroup
	for _, original := range all {
		copied := original.DeepCopy()
		copied.Name += s.suffix
		copied.Spec.Group += s.suffix
		version := copied.Spec.Versions[0]
		s.resources[schema.GroupKind{Group: original.Spec.Group, Kind: original.Spec.Names.Kind}] = resource{
			GroupVersionResource: schema.GroupVersionResource{Group: copied.Spec.Group, Version: version.Name, Resource: copied.Spec.Names.Plural},
			namespaced:           original.Spec.Scope == apiextensionsv1.NamespaceScoped,
			hasStatus:            version.Subresources != nil && version.Subresources.Status != nil,
		}
		installs.Go(func() {
			if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), copied, metav1.CreateOptions{}); err != nil {
				t.Errorf("creating the definition of %s: %v", copied.Spec.Names.Kind, err)
			}
		})
	}
	installs.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for kind, resource := range s.resources {
		testenv.Eventually(t, fmt.Sprintf("%s is served", kind), func(ctx context.Context) (bool, error) {
			_, err := client.Resource(resource.GroupVersionResource).List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, err
		})
	}
	return s
}

// place returns the resource of an example and the example as it is sent.
func (s *server) place(t *testing.T, example *unstructured.Unstructured) (dynamic.ResourceInterface, resource, *unstructured.Unstructured) {
	t.Helper()
	kind := example.GroupVersionKind()
	resource, ok := s.resources[kind.GroupKind()]
	if !ok {
		t.Fatalf("%s has no definition", kind)
	}
	object := example.DeepCopy()
	object.SetAPIVersion(resource.GroupVersion().String())
	if !resource.namespaced {
		return s.client.Resource(resource.GroupVersionResource), resource, object
	}
	object.SetNamespace(s.namespace)
	return s.client.Resource(resource.GroupVersionResource).Namespace(s.namespace), resource, object
}

// create stores an object with its status and returns the stored object.
func (s *server) create(t *testing.T, example *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	client, resource, object := s.place(t, example)
	stored, err := client.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("creating %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	t.Cleanup(func() {
		err := client.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	if status, ok := object.Object["status"]; ok && resource.hasStatus {
		stored.Object["status"] = status
		stored, err = client.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Fatalf("updating the status of %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	return stored
}

// neverStored are kinds without a CustomResourceDefinition.
var neverStored = map[string]bool{"ResourceInterpreterContext": true, "ClusterProxyOptions": true, "Search": true, "Proxying": true, "WorkloadMetrics": true, "MetricsReport": true}

func TestServer(t *testing.T) {
	s := newServer(t)
	t.Run("examples", func(t *testing.T) { testExamplesComeBack(t, s) })
	t.Run("rules", func(t *testing.T) { testRules(t, s) })
	t.Run("defaults", func(t *testing.T) { testDefaults(t, s) })
}

func testExamplesComeBack(t *testing.T, s *server) {
	for name, documents := range examples(t) {
		t.Run(name, func(t *testing.T) {
			for _, document := range documents {
				if neverStored[document.GetKind()] {
					continue
				}
				s.create(t, document)
				client, _, sent := s.place(t, document)
				got, err := client.Get(t.Context(), document.GetName(), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				delete(sent.Object, "metadata")
				delete(got.Object, "metadata")
				if diff := cmp.Diff(sent.Object, got.Object); diff != "" {
					t.Errorf("the server changed %s (-sent +got):\n%s", document.GetName(), diff)
				}
			}
		})
	}
}
