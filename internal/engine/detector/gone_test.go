package detector

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestBindingSeenBeforeTemplate keeps a binding whose template is not in the cache yet, and deletes it when the
// template is deleted.
func TestBindingSeenBeforeTemplate(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	client, namespace := server.Client(t), server.Namespace(t)
	state, err := cell.New(server.RESTConfig(), cell.Options{Name: "cell-a"})
	if err != nil {
		t.Fatal(err)
	}
	following, stop := context.WithCancel(t.Context())
	if err := state.Start(following); err != nil {
		t.Fatal(err)
	}
	d := New(state, nil, nil, nil, Options{}, func(cell.Key) {})
	stop() // from here on the cache is stale

	template, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key := cell.TemplateKey{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Key: cell.Key{Namespace: namespace, Name: "web"}}
	binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Binding().Name}}
	binding.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: "web", UID: template.UID}
	if _, err := state.CreateBinding(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	if state.Templates.Get(key) != nil {
		t.Fatal("the template is in the cache, so this test shows nothing")
	}
	bindings, err := dynamic.NewForConfig(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	exists := func() bool {
		t.Helper()
		_, err := bindings.Resource(workv1alpha2.GroupVersion.WithResource("resourcebindings")).Namespace(namespace).Get(t.Context(), binding.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	if err := d.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if !exists() {
		t.Fatal("the binding was deleted though its template exists")
	}
	if err := client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if exists() {
		t.Error("the binding is still there without its template")
	}
}

// TestBindingOfUnservedKind keeps a binding whose template's kind is not served, and checks it again: there is no event
// for templates that were deleted meanwhile when the kind is served again.
func TestBindingOfUnservedKind(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	namespace := server.Namespace(t)
	state, err := cell.New(server.RESTConfig(), cell.Options{Name: "cell-a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := New(state, nil, nil, nil, Options{}, func(cell.Key) {})
	kind := schema.GroupVersionKind{Group: "unserved.example", Version: "v1", Kind: "Widget"}
	key := cell.TemplateKey{GroupVersionKind: kind, Key: cell.Key{Namespace: namespace, Name: "web"}}
	if err := d.Reconcile(t.Context(), key); err != nil {
		t.Errorf("without a binding: %v", err)
	}
	binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Binding().Name}}
	binding.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "unserved.example/v1", Kind: "Widget", Namespace: namespace, Name: "web"}
	if _, err := state.CreateBinding(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	if err := d.Reconcile(t.Context(), key); !errors.As(err, &queue.Later{}) {
		t.Errorf("the binding is not checked again: %v", err)
	}
	if state.Binding(key.Binding()) == nil {
		t.Error("the binding is gone")
	}
}
