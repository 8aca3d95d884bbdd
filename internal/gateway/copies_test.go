package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/testenv"
)

func adminOf(t testing.TB, plane *controlplane.ControlPlane) *rest.Config {
	t.Helper()
	config, err := plane.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// testNewNamespace uses a namespace before it has reached the cells.
func testNewNamespace(t *testing.T, w *world) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new-namespace"}}
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	created := make(chan error, 1)
	go func() {
		_, err := w.client.CoreV1().ConfigMaps(namespace.Name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		created <- err
	}()
	for _, cell := range w.Cells {
		if _, err := clientFor(t, adminOf(t, cell)).CoreV1().Namespaces().Create(t.Context(), namespace.DeepCopy(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-created; err != nil {
		t.Errorf("creating an object in a new namespace: %v", err)
	}
	_, err := w.client.CoreV1().ConfigMaps("no-such-namespace").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("creating an object in a missing namespace: %v, want 404", err)
	}
}

// testNewKind uses a custom resource before its definition has reached the cells. Discovery shows it when all cells have it.
func testNewKind(t *testing.T, w *world) {
	gvr := schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "gadgets"}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvr.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
	define := func(config *rest.Config) {
		t.Helper()
		client, err := clientset.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition.DeepCopy(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	announced := func() bool {
		_, lists, err := w.client.Discovery().ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool { return list.GroupVersion == "example.io/v1" })
	}
	define(w.gateway.Config(t))
	client, err := dynamic.NewForConfig(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	gadgets := client.Resource(gvr).Namespace("default")
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.io/v1", "kind": "Gadget", "metadata": map[string]any{"name": fmt.Sprintf("g-%d", i)}}}
			if _, err := gadgets.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Errorf("creating an object of a new kind: %v", err)
			}
		})
	}
	define(adminOf(t, w.Cells[0]))
	define(adminOf(t, w.Cells[1]))
	w.waitStored(t, 0, gvr, "default")
	if announced() {
		t.Error("discovery shows the kind before every cell serves it")
	}
	define(adminOf(t, w.Cells[2]))
	group.Wait()
	testenv.Eventually(t, "discovery shows the kind", func(context.Context) (bool, error) { return announced(), nil })
	list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 6 {
		t.Errorf("listed %v: %v", list, err)
	}
	if list != nil && list.GetKind() != "GadgetList" {
		t.Errorf("the list is a %s", list.GetKind())
	}
}

// waitStored waits until a cell stores an object of a kind: the gateway knows the kind then, and that the cell serves it.
func (w *world) waitStored(t *testing.T, cell int, resource schema.GroupVersionResource, namespace string) {
	t.Helper()
	client, err := dynamic.NewForConfig(adminOf(t, w.Cells[cell]))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, w.Cells[cell].Name()+" stores one of "+resource.Resource, func(ctx context.Context) (bool, error) {
		list, err := client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) > 0, err
	})
}
