package protection

import (
	"fmt"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// TestCreatedMeanwhile creates a protected object between the check of a request, which finds none, and the request.
func TestCreatedMeanwhile(t *testing.T) {
	none := intstr.FromInt32(0)
	s := startServer(t, &cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "labelled"}, Spec: cellplanev1alpha1.ProtectionPolicySpec{
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"*"}, Kinds: []string{"*"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"precious": "yes"}}}},
		ScaleDown:         &cellplanev1alpha1.ScaleDownProtection{MaxDecrease: &none},
	}})
	namespace := newNamespace(t, s.client)
	app := map[string]string{"app": "x"}
	deployment := func(name string, replicas int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"precious": "yes", names.DeletionProtectedLabel: names.DeletionProtectedAlways}},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}},
		}
	}
	replaced := func(contentType, version string) func(string) []byte {
		return func(name string) []byte {
			d := deployment(name, 0)
			d.ResourceVersion = version
			encoder := protobufEncoder(t)
			if contentType == runtime.ContentTypeJSON {
				info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
				encoder = info.Serializer
			}
			body, err := runtime.Encode(encoder, d)
			if err != nil {
				t.Fatal(err)
			}
			return body
		}
	}
	same := func(body string) func(string) []byte { return func(string) []byte { return []byte(body) } }
	for i, test := range []struct {
		verb, method, suffix, contentType string
		body                              func(name string) []byte
		alone                             int // is the answer if nobody creates the object
	}{
		{"patch", http.MethodPatch, "?fieldManager=x&force=true", string(types.ApplyYAMLPatchType), func(name string) []byte {
			return fmt.Appendf(nil, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s, labels: {precious: \"no\"}}\nspec: {replicas: 0, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}\n", name)
		}, http.StatusCreated},
		{"patch", http.MethodPatch, "", string(types.MergePatchType), same(`{"spec":{"replicas":0}}`), http.StatusNotFound},
		{"patch", http.MethodPatch, "", string(types.StrategicMergePatchType), same(`{"metadata":{"labels":{"precious":null}}}`), http.StatusNotFound},
		{"patch", http.MethodPatch, "", string(types.JSONPatchType), same(`[{"op":"replace","path":"/spec/replicas","value":0}]`), http.StatusNotFound},
		{"patch", http.MethodPatch, "/scale", string(types.MergePatchType), same(`{"spec":{"replicas":0}}`), http.StatusNotFound},
		{"update", http.MethodPut, "", runtime.ContentTypeJSON, replaced(runtime.ContentTypeJSON, ""), http.StatusNotFound},
		{"update", http.MethodPut, "", runtime.ContentTypeProtobuf, replaced(runtime.ContentTypeProtobuf, ""), http.StatusNotFound},
		{"delete", http.MethodDelete, "", "", same(""), http.StatusNotFound},
		{"delete", http.MethodDelete, "", runtime.ContentTypeJSON, same(`{"propagationPolicy":"Background"}`), http.StatusNotFound},
	} {
		name := fmt.Sprintf("d-%d", i)
		t.Run(fmt.Sprintf("%s %s %s", test.method, test.suffix, test.contentType), func(t *testing.T) {
			path := "/apis/apps/v1/namespaces/" + namespace + "/deployments/"
			s.between = nil
			if code, answer := s.do(t, test.verb, test.method, path+name+"-alone"+test.suffix, test.contentType, test.body(name+"-alone")); code != test.alone {
				t.Errorf("for an object that does not exist: %d %s, want %d", code, answer, test.alone)
			}
			created := false
			s.between = func() {
				if created {
					return
				}
				created = true
				if _, err := s.client.AppsV1().Deployments(namespace).Create(t.Context(), deployment(name, 10), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			code, answer := s.do(t, test.verb, test.method, path+name+test.suffix, test.contentType, test.body(name))
			now, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || *now.Spec.Replicas != 10 || now.Labels["precious"] != "yes" || code != http.StatusForbidden {
				t.Errorf("%d %s; the object is there: %v, with %v", code, answer, err, now)
			}
		})
	}
	t.Run("PUT that creates", func(t *testing.T) {
		s.between = nil
		path := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles/"
		role := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"%s","resourceVersion":"%s"}}`
		for name, version := range map[string]string{"new": "", "versioned": "4711"} {
			if code, answer := s.do(t, "update", http.MethodPut, path+name, runtime.ContentTypeJSON, fmt.Appendf(nil, role, name, version)); code != http.StatusCreated {
				t.Errorf("%d %s, want it created", code, answer)
			}
		}
	})
}
