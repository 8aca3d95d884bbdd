package protection

import (
	"encoding/json"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// TestBindingNamesVersion binds pods under versions that the client names. The labels of the Binding would take the protection away that the pod has
// in that version, and not that of the version that was checked.
func TestBindingNamesVersion(t *testing.T) {
	keeps := func(label string) *cellplanev1alpha1.ProtectionPolicy {
		return &cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: label}, Spec: cellplanev1alpha1.ProtectionPolicySpec{
			ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{""}, Kinds: []string{"Pod"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}}}},
			Deletion:          &cellplanev1alpha1.DeletionProtection{},
		}}
	}
	s := startServer(t, keeps("first"), keeps("second"))
	namespace := newNamespace(t, s.client)
	read := func(t *testing.T, p *corev1.Pod) []byte {
		t.Helper()
		data, err := s.client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name(p.Name).SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, encode := range map[string]func(*corev1.Binding) ([]byte, string, error){
		"JSON": func(b *corev1.Binding) ([]byte, string, error) {
			body, err := json.Marshal(b)
			return body, runtime.ContentTypeJSON, err
		},
		"protobuf": func(b *corev1.Binding) ([]byte, string, error) {
			body, err := runtime.Encode(protobufEncoder(t), b)
			return body, runtime.ContentTypeProtobuf, err
		},
	} {
		for form, path := range map[string]func(string) string{
			"pods":     func(pod string) string { return "/pods/" + pod + "/binding" },
			"bindings": func(string) string { return "/bindings" },
		} {
			t.Run(form+" in "+name, func(t *testing.T) {
				bind := func(p *corev1.Pod, version string, labels map[string]string) (int, string) {
					body, contentType, err := encode(&corev1.Binding{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"}, Target: corev1.ObjectReference{Kind: "Node", Name: "some"},
						ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: namespace, Labels: labels, ResourceVersion: version},
					})
					if err != nil {
						t.Fatal(err)
					}
					return s.do(t, "create", http.MethodPost, "/api/v1/namespaces/"+namespace+path(p.Name), contentType, body)
				}
				now := func(p *corev1.Pod) *corev1.Pod {
					found, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return found
				}
				p := s.patchPod(t, s.pod(t, namespace), `{"metadata":{"labels":{"first":"yes"}}}`)
				before := read(t, p)
				later := s.patchPod(t, p, `{"metadata":{"labels":{"second":"yes"}}}`)
				s.stale = before
				if code, answer := bind(p, later.ResourceVersion, map[string]string{"second": "no"}); code != http.StatusConflict || now(p).Labels["second"] != "yes" || now(p).Spec.NodeName != "" {
					t.Errorf("under a version that was not checked: %d %s, want a conflict; the pod is %v", code, answer, now(p))
				}
				if code, answer := bind(p, p.ResourceVersion, map[string]string{"other": "label"}); code != http.StatusConflict || now(p).Spec.NodeName != "" {
					t.Errorf("under an old version: %d %s, want a conflict", code, answer)
				}
				if code, answer := bind(p, later.ResourceVersion, map[string]string{"second": "no"}); code != http.StatusForbidden {
					t.Errorf("a label that protects: %d %s, want a refusal", code, answer)
				}
				if code, answer := bind(p, later.ResourceVersion, map[string]string{"other": "label"}); code != http.StatusCreated || now(p).Spec.NodeName != "some" || now(p).Labels["other"] != "label" {
					t.Errorf("under the current version: %d %s; the pod is %v", code, answer, now(p))
				}
			})
		}
	}
}
