package dependencies_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/dependencies"
	"github.com/cellplane/cellplane/internal/testenv"
)

// refersTo is an interpreter that returns the same references for every template.
type refersTo []configv1alpha1.DependentObjectReference

func (r refersTo) Dependencies(context.Context, *unstructured.Unstructured) ([]configv1alpha1.DependentObjectReference, error) {
	return r, nil
}

// TestUncached keeps dependencies attached while the template or the kind of the dependency is not in the cache.
// Neither means that they are no longer needed.
func TestUncached(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	namespace := server.Namespace(t)
	for _, name := range []string{"seen", "needed"} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := server.Client(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	view, err := cell.New(server.RESTConfig(), cell.Options{Name: "cell-a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	remote, err := cell.NewBindingClient(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	reference := func(apiVersion, kind, name string) configv1alpha1.DependentObjectReference {
		return configv1alpha1.DependentObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
	}
	binding := func(apiVersion, kind, name string) *workv1alpha2.ResourceBinding {
		b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{names.ResourceBindingPermanentIDLabel: "an-id"}}}
		b.Spec.PropagateDeps = true
		b.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
		created, err := view.CreateBinding(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	reconcile := func(needing *workv1alpha2.ResourceBinding, references ...configv1alpha1.DependentObjectReference) {
		t.Helper()
		if err := dependencies.New(view, nil, refersTo(references), nil).Reconcile(t.Context(), cell.Key{Namespace: namespace, Name: needing.Name}); err != nil {
			t.Fatal(err)
		}
	}
	attached := func() bool {
		t.Helper()
		b, err := remote.Get(t.Context(), cell.Key{Namespace: namespace, Name: "needed-configmap"})
		if err != nil {
			t.Fatal(err)
		}
		return b != nil && b.DeletionTimestamp == nil
	}

	needing := binding("v1", "ConfigMap", "seen")
	reconcile(needing, reference("v1", "ConfigMap", "needed"))
	if !attached() {
		t.Fatal("the dependency is not attached")
	}

	// The binding now names a template that is not cached.
	edit := func(change func(*workv1alpha2.ResourceBinding)) {
		t.Helper()
		now := view.Binding(cell.Key{Namespace: namespace, Name: needing.Name}).DeepCopy()
		change(now)
		if _, err := view.UpdateBinding(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	edit(func(b *workv1alpha2.ResourceBinding) { b.Spec.Resource.Name = "unseen" })
	reconcile(needing)
	if !attached() {
		t.Error("the dependency was detached although the template is only not cached")
	}

	// The kind is not served.
	edit(func(b *workv1alpha2.ResourceBinding) { b.Spec.Resource.Name = "seen" })
	other := view.Binding(cell.Key{Namespace: namespace, Name: "needed-configmap"}).DeepCopy()
	other.Spec.Resource.APIVersion, other.Spec.Resource.Kind = "unserved.example/v1", "Widget"
	if _, err := view.UpdateBinding(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	reconcile(needing, reference("unserved.example/v1", "Widget", "needed"))
	if !attached() {
		t.Error("the dependency was detached although its kind is only not served")
	}

	// Nothing refers to it any more.
	reconcile(needing)
	if attached() {
		t.Error("the dependency is still attached")
	}
}
