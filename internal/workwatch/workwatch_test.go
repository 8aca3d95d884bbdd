package workwatch

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestUntil sees the Works of a name in every namespace as they change, and no others.
func TestUntil(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	client, err := dynamic.NewForConfig(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	works := client.Resource(workv1alpha1.GroupVersion.WithResource("works"))
	a, b := server.Namespace(t), server.Namespace(t)
	create := func(namespace, name string) {
		t.Helper()
		work := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"workload": map[string]any{}}}}
		work.SetGroupVersionKind(workv1alpha1.GroupVersion.WithKind("Work"))
		work.SetName(name)
		if _, err := works.Namespace(namespace).Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(a, "web") // before the watch: only a check can find it
	w := New(t.Context(), client)
	var steps []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = w.Until(ctx, "web", func(_ context.Context, seen Seen) (bool, error) {
		switch {
		case len(steps) == 0:
			steps = append(steps, "asked")
			create(b, "other")
			create(b, "web")
		case seen[b] == nil && len(steps) == 1: // it came before the watch began
			_, err := works.Namespace(b).Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"suspendDispatching":true}}`), metav1.PatchOptions{})
			return false, err
		case seen[b] != nil && len(steps) == 1:
			steps = append(steps, "created")
			if err := works.Namespace(b).Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
				return false, err
			}
		case seen[b] == nil && len(steps) == 2:
			steps = append(steps, "deleted")
		}
		for _, work := range seen {
			if work.GetName() != "web" {
				t.Errorf("it sees %s", work.GetName())
			}
		}
		return len(steps) == 3, nil
	})
	if err != nil {
		t.Errorf("%v after %v", err, steps)
	}
	if len(w.waiting) != 0 {
		t.Errorf("%d wait after the end", len(w.waiting))
	}
	refused := errors.New("refused")
	if err := w.Until(ctx, "web", func(context.Context, Seen) (bool, error) { return false, refused }); !errors.Is(err, refused) {
		t.Errorf("a check that fails ends with %v", err)
	}
	cancel()
	if err := w.Until(ctx, "web", func(context.Context, Seen) (bool, error) { return false, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("without time it ends with %v", err)
	}
}
