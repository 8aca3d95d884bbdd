package protection

import (
	"fmt"
	"net/http"
	"sync"
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
	s.testSelectedMeanwhile(t, namespace, deployment)
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

// testSelectedMeanwhile has a policy select an object between the check of a request, which no policy is concerned by, and the request: the object
// gets a label, or is replaced by another one of its name.
func (s *server) testSelectedMeanwhile(t *testing.T, namespace string, deployment func(string, int32) *appsv1.Deployment) {
	deployments := s.client.AppsV1().Deployments(namespace)
	path := "/apis/apps/v1/namespaces/" + namespace + "/deployments/"
	becomes := map[string]func(*testing.T, string){
		"labelled": func(t *testing.T, name string) {
			patch := `{"metadata":{"labels":{"precious":"yes"}}}`
			if _, err := deployments.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		},
		"replaced": func(t *testing.T, name string) {
			if err := deployments.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := deployments.Create(t.Context(), deployment(name, 10), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		},
		"changed": func(t *testing.T, name string) {
			if _, err := deployments.Patch(t.Context(), name, types.MergePatchType, []byte(asOther), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		},
	}
	apply := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, labels: {precious: \"no\"}}, spec: {replicas: 0, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}}"
	for i, test := range []struct {
		suffix, contentType, body string
	}{
		{"?fieldManager=x&force=true", string(types.ApplyYAMLPatchType), apply},
		{"", string(types.MergePatchType), `{"metadata":{"labels":{"precious":null}},"spec":{"replicas":0}}`},
		{"", string(types.StrategicMergePatchType), `{"metadata":{"labels":{"precious":null}},"spec":{"replicas":0}}`},
		{"", string(types.JSONPatchType), `[{"op":"replace","path":"/spec/replicas","value":0}]`},
		{"/scale", string(types.MergePatchType), `{"spec":{"replicas":0}}`},
	} {
		for how, become := range becomes {
			t.Run(fmt.Sprintf("%s %s %s", how, test.suffix, test.contentType), func(t *testing.T) {
				d := deployment(fmt.Sprintf("s-%d-%s", i, how), 10)
				d.Labels = nil
				if _, err := deployments.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				var first sync.Once
				s.between = func() { first.Do(func() { become(t, d.Name) }) }
				body := test.body
				if body == apply {
					body = fmt.Sprintf(apply, d.Name)
				}
				code, answer := s.do(t, "patch", http.MethodPatch, path+d.Name+test.suffix, test.contentType, []byte(body))
				now, err := deployments.Get(t.Context(), d.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if how == "changed" && (code != http.StatusOK || *now.Spec.Replicas != 0) {
					t.Errorf("an object that no policy selects: %d %s", code, answer)
				}
				if how != "changed" && (code != http.StatusForbidden || *now.Spec.Replicas != 10 || now.Labels["precious"] != "yes") {
					t.Errorf("%d %s; it has %d replicas and the labels %v", code, answer, *now.Spec.Replicas, now.Labels)
				}
			})
		}
	}
	t.Run("with a version that is guessed", func(t *testing.T) {
		d := deployment("guessed", 10)
		d.Labels = nil
		created, err := deployments.Create(t.Context(), d, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before, err := s.client.AppsV1().RESTClient().Get().AbsPath(path+d.Name).SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.between = nil
		patch := `{"metadata":{"resourceVersion":%q},"spec":{"replicas":%d}}`
		if code, answer := s.do(t, "patch", http.MethodPatch, path+d.Name, string(types.MergePatchType), fmt.Appendf(nil, patch, created.ResourceVersion, 9)); code != http.StatusOK {
			t.Errorf("with the version of the object: %d %s", code, answer)
		}
		later, err := deployments.Patch(t.Context(), d.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"precious":"yes"}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.stale = before
		if code, answer := s.do(t, "patch", http.MethodPatch, path+d.Name, string(types.MergePatchType), fmt.Appendf(nil, patch, later.ResourceVersion, 0)); code != http.StatusForbidden {
			t.Errorf("with a version that was not checked: %d %s", code, answer)
		}
		if now, err := deployments.Get(t.Context(), d.Name, metav1.GetOptions{}); err != nil || *now.Spec.Replicas != 9 {
			t.Errorf("the object is %+v: %v", now, err)
		}
	})
}
