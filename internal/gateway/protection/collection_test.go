package protection

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// searched counts the searches for protected objects, and finds one if there is any.
type searched struct {
	*server
	found    []byte
	searches atomic.Int32
}

// Find implements Objects.
func (s *searched) Find(context.Context, kinds.Resource, string, url.Values, int) ([][]byte, error) {
	s.searches.Add(1)
	if s.found == nil {
		return nil, nil
	}
	return [][]byte{s.found}, nil
}

// Namespaced implements Objects.
func (s *searched) Namespaced(context.Context) ([]kinds.Resource, error) {
	return []kinds.Resource{{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments"), Kind: "Deployment", Namespaced: true}}, nil
}

// TestFinalizeNamespace removes a namespace. Only for the namespace controller, which has emptied it, its contents are not searched.
func TestFinalizeNamespace(t *testing.T) {
	s := startServer(t)
	objects := &searched{server: s, found: []byte(`{"metadata":{"name":"x"}}`)}
	s.guard.Objects = objects
	namespace, err := s.client.CoreV1().Namespaces().Get(t.Context(), newNamespace(t, s.client), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.CoreV1().Namespaces().Delete(t.Context(), namespace.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespace.Name + `"},"spec":{"finalizers":[]}}`)
	finalize := func(caller string) (int, string) {
		return s.doAs(t, caller, "update", http.MethodPut, "/api/v1/namespaces/"+namespace.Name+"/finalize", "application/json", body)
	}
	if code, answer := finalize("someone"); code != http.StatusForbidden || objects.searches.Load() != 1 {
		t.Errorf("finalizing a namespace with a protected object: %d %s after %d searches", code, answer, objects.searches.Load())
	}
	if code, answer := finalize(namespaceController); code != http.StatusOK || objects.searches.Load() != 1 {
		t.Errorf("finalizing as the namespace controller: %d %s after %d searches", code, answer, objects.searches.Load()-1)
	}
}

// TestEmptyCollection deletes collections with nothing in them. The namespace controller does so for each kind of a namespace, so these cost
// no searches. Others are searched before anything is deleted.
func TestEmptyCollection(t *testing.T) {
	s := startServer(t)
	objects := &searched{server: s}
	s.guard.Objects = objects
	namespace := newNamespace(t, s.client)
	deleteAll := func(query string) (int, string) {
		return s.do(t, "deletecollection", http.MethodDelete, "/apis/apps/v1/namespaces/"+namespace+"/deployments"+query, "", nil)
	}
	for _, query := range []string{"", "?limit=5", "?labelSelector=a%3Db"} {
		if code, answer := deleteAll(query); code != http.StatusOK || objects.searches.Load() != 0 {
			t.Errorf("deleting nothing with %q: %d %s after %d searches", query, code, answer, objects.searches.Load())
		}
	}
	d := s.deployment(t, namespace, 1)
	objects.found = []byte(`{"metadata":{"name":"` + d.Name + `"}}`)
	if code, answer := deleteAll(""); code != http.StatusForbidden || !strings.Contains(answer, "protected") {
		t.Errorf("deleting a collection with a protected object: %d %s", code, answer)
	}
	if _, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), d.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the object of the collection that was refused: %v", err)
	}
	objects.found = nil
	if code, answer := deleteAll("?propagationPolicy=Background"); code != http.StatusOK {
		t.Errorf("deleting the collection: %d %s", code, answer)
	}
	if _, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), d.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object of the collection that was deleted: %v", err)
	}
}
