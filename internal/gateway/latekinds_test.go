package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/testenv"
)

// testLateKind deletes a CRD in one cell and creates it again, as in a cell that starts empty: no watcher may get a 404. When the CRD is
// deleted everywhere, every watcher must.
func testLateKind(t *testing.T, w *world) {
	k := &lateKind{world: w, resource: schema.GroupVersionResource{Group: "late.example.io", Version: "v1", Resource: "widgets"}}
	everywhere := []*rest.Config{adminOf(t, w.Hub), adminOf(t, w.Cells[0]), adminOf(t, w.Cells[1]), adminOf(t, w.Cells[2])}
	for _, plane := range everywhere {
		k.define(t, plane)
	}
	client := dynamic.NewForConfigOrDie(w.gateway.Config(t))
	widgets := client.Resource(k.resource).Namespace("default")
	informer := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, "default", nil).ForResource(k.resource).Informer()
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { k.note(err) }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go informer.RunWithContext(ctx)
	shows := func(name string) {
		t.Helper()
		testenv.Eventually(t, "the informer shows "+name, func(context.Context) (bool, error) {
			_, exists, err := informer.GetStore().GetByKey("default/" + name)
			return exists, err
		})
	}
	testenv.Eventually(t, "the informer has synced", func(context.Context) (bool, error) { return informer.HasSynced(), errors.Join(k.noted()...) })

	// Without the definition in one cell, the others' objects are still shown.
	k.forget(t, everywhere[1])
	testenv.Eventually(t, "the cell does not serve the kind", func(ctx context.Context) (bool, error) {
		_, err := dynamic.NewForConfigOrDie(everywhere[1]).Resource(k.resource).List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err), err
	})
	elsewhere, there := k.nameIn(t, 1), k.nameIn(t, 0)
	k.create(t, widgets, elsewhere)
	shows(elsewhere)
	// Creates in that cell, and new watches, wait for the definition.
	var group sync.WaitGroup
	group.Go(func() { k.create(t, widgets, there) })
	group.Go(func() {
		stream, err := widgets.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Errorf("beginning to watch: %v", err)
			return
		}
		stream.Stop()
	})
	k.define(t, everywhere[1])
	group.Wait()
	shows(there)
	for _, err := range k.noted() {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // the cell has lost its history
			t.Errorf("the informer got: %v", err)
		}
	}

	list, err := widgets.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := widgets.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	for _, plane := range everywhere {
		k.forget(t, plane)
	}
	testenv.Eventually(t, "the watch of the deleted kind has ended", func(context.Context) (bool, error) {
		select {
		case event, open := <-stream.ResultChan():
			return !open, fmt.Errorf("got %v", event)
		default:
			return false, nil
		}
	})
	if _, err := widgets.Watch(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("watching a deleted kind: %v, want 404", err)
	}
}

// lateKind is a kind whose definition is created and deleted, and the errors that an informer of it got.
type lateKind struct {
	*world
	resource schema.GroupVersionResource

	mu   sync.Mutex
	errs []error
}

func (k *lateKind) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

func (k *lateKind) noted() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]error(nil), k.errs...)
}

// nameIn returns a name whose object belongs to a cell.
func (k *lateKind) nameIn(t *testing.T, cell int) string {
	t.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprintf("widget-%d", i); ownerOf(t, k.world, "default", name) == cell {
			return name
		}
	}
}

func (k *lateKind) create(t *testing.T, widgets dynamic.ResourceInterface, name string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.resource.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": name}}}
	if _, err := widgets.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating %s: %v", name, err)
	}
}

func (k *lateKind) define(t *testing.T, plane *rest.Config) {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: k.resource.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: k.resource.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
	if _, err := clientset.NewForConfigOrDie(plane).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// forget deletes the definition and waits until it is gone.
func (k *lateKind) forget(t *testing.T, plane *rest.Config) {
	t.Helper()
	definitions := clientset.NewForConfigOrDie(plane).ApiextensionsV1().CustomResourceDefinitions()
	if err := definitions.Delete(t.Context(), k.resource.GroupResource().String(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the definition is gone", func(ctx context.Context) (bool, error) {
		_, err := definitions.Get(ctx, k.resource.GroupResource().String(), metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}
