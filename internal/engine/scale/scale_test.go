package scale

import (
	"errors"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/testenv"
)

// twice sends each write twice, as a proxy may that has lost the answer, and returns the second answer.
type twice struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t twice) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut {
		return t.RoundTripper.RoundTrip(r)
	}
	again := r.Clone(r.Context())
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	again.Body = body
	first, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := first.Body.Close(); err != nil {
		return nil, err
	}
	return t.RoundTripper.RoundTrip(again)
}

// TestWrite knows its own write again if it was sent twice, and no other's.
func TestWrite(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	namespace := server.Namespace(t)
	labels := map[string]string{"app": "web"}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}},
	}}
	deployments := server.Client(t).AppsV1().Deployments(namespace)
	if _, err := deployments.Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(server.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return twice{next} })
	federation, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kind := &cell.Kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments", Namespaced: true}
	for _, test := range []struct {
		expected, replicas, then int32
		want                     error
	}{
		{expected: 2, replicas: 5, then: 5},
		{expected: 2, replicas: 7, then: 5, want: ErrChanged},
		{expected: 4, replicas: 5, then: 5, want: ErrChanged}, // another has written the same
		{expected: 5, replicas: 0, then: 0},
	} {
		err := Write(t.Context(), federation, kind, cell.Key{Namespace: namespace, Name: "web"}, &test.expected, test.replicas)
		if !errors.Is(err, test.want) || (err != nil) != (test.want != nil) {
			t.Errorf("from %d to %d: %v, want %v", test.expected, test.replicas, err, test.want)
		}
		if now, err := deployments.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || *now.Spec.Replicas != test.then {
			t.Errorf("from %d to %d it has %d replicas (%v), want %d", test.expected, test.replicas, *now.Spec.Replicas, err, test.then)
		}
	}
}
