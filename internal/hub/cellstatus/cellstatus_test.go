package cellstatus_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/cellstatus"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestApply has two writers, an outdated Cell, one that was made again, and one that has gone.
func TestApply(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub, err := client.New(testenv.SharedAPIServer(t).RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	name := "cellstatus-" + rand.String(8)
	create := func() *cellplanev1alpha1.Cell {
		t.Helper()
		ref := cellplanev1alpha1.SecretReference{Namespace: "some", Name: "secret"}
		cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cellplanev1alpha1.CellSpec{
			Endpoint: cellplanev1alpha1.CellEndpoint{Server: "https://127.0.0.1:1", CABundle: []byte("some")}, Credentials: cellplanev1alpha1.CellCredentials{SecretRef: ref},
			Etcd: cellplanev1alpha1.CellEtcd{Endpoints: []string{"https://127.0.0.1:1"}, SecretRef: ref},
		}}
		if err := hub.Create(t.Context(), cell); err != nil {
			t.Fatal(err)
		}
		return cell
	}
	remove := func() {
		_ = hub.Delete(context.Background(), &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	t.Cleanup(remove)
	part := func(kind string) cellstatus.Conditions {
		var conditions []metav1.Condition
		meta.SetStatusCondition(&conditions, metav1.Condition{Type: "Unrelated", Status: metav1.ConditionTrue, Reason: "Some"})
		meta.SetStatusCondition(&conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Some"})
		return cellstatus.Of(conditions, kind)
	}
	has := func(want ...string) {
		t.Helper()
		cell := &cellplanev1alpha1.Cell{}
		if err := hub.Get(t.Context(), types.NamespacedName{Name: name}, cell); err != nil {
			t.Fatal(err)
		}
		for _, kind := range want {
			if meta.FindStatusCondition(cell.Status.Conditions, kind) == nil {
				t.Errorf("the cell has %+v, and not %s", cell.Status.Conditions, kind)
			}
		}
		if len(cell.Status.Conditions) != len(want) {
			t.Errorf("the cell has %+v, want %v", cell.Status.Conditions, want)
		}
	}

	cell := create()
	outdated := cell.DeepCopy()
	if err := cellstatus.Apply(t.Context(), hub, cell, "first", part("First")); err != nil {
		t.Fatal(err)
	}
	if err := cellstatus.Apply(t.Context(), hub, cell, "second", part("Second")); err != nil {
		t.Fatal(err)
	}
	has("First", "Second")
	if err := cellstatus.ApplyTo(t.Context(), hub, outdated, "third", part("Third")); !apierrors.IsConflict(err) {
		t.Errorf("writing to an outdated version: %v", err)
	}
	has("First", "Second")

	remove()
	if err := cellstatus.Apply(t.Context(), hub, cell, "first", part("First")); err != nil {
		t.Errorf("writing to a cell that has gone: %v", err)
	}
	again := create()
	if err := cellstatus.ApplyTo(t.Context(), hub, cell, "first", part("First")); !apierrors.IsConflict(err) {
		t.Errorf("writing to a cell that was made again: %v", err)
	}
	has()
	for range 2 {
		if err := cellstatus.ApplyTo(t.Context(), hub, again, "third", part("Third")); err != nil {
			t.Fatal(err)
		}
	}
	has("Third")
}
