package protection

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestLabel checks the label as Karmada defines it: which value protects, for objects and namespaces, and the text of the refusal.
func TestLabel(t *testing.T) {
	s := startServer(t)
	namespace := newNamespace(t, s.client)
	d := s.deployment(t, namespace, 1)
	for _, object := range []struct {
		path  string
		label func(patch []byte) error
		there func() (*metav1.ObjectMeta, error)
	}{
		{
			path: "/apis/apps/v1/namespaces/" + namespace + "/deployments/" + d.Name,
			label: func(patch []byte) error {
				_, err := s.client.AppsV1().Deployments(namespace).Patch(t.Context(), d.Name, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			},
			there: func() (*metav1.ObjectMeta, error) {
				found, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), d.Name, metav1.GetOptions{})
				return &found.ObjectMeta, err
			},
		},
		{
			path: "/api/v1/namespaces/" + namespace,
			label: func(patch []byte) error {
				_, err := s.client.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			},
			there: func() (*metav1.ObjectMeta, error) {
				found, err := s.client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
				return &found.ObjectMeta, err
			},
		},
	} {
		if err := object.label([]byte(`{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Always"}}}`)); err != nil {
			t.Fatal(err)
		}
		code, answer := s.do(t, "delete", http.MethodDelete, object.path, "", nil)
		if code != http.StatusForbidden || !strings.Contains(answer, "This resource is protected, please make sure to remove the label: resourcetemplate.karmada.io/deletion-protected") {
			t.Errorf("deleting %s: %d %s", object.path, code, answer)
		}
		if meta, err := object.there(); err != nil || meta.DeletionTimestamp != nil {
			t.Errorf("%s is being deleted (%v)", object.path, err)
		}
		// No other value protects.
		if err := object.label([]byte(`{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Never"}}}`)); err != nil {
			t.Fatal(err)
		}
		if code, answer := s.do(t, "delete", http.MethodDelete, object.path, "", nil); code != http.StatusOK {
			t.Errorf("deleting %s without protection: %d %s", object.path, code, answer)
		}
	}
}
