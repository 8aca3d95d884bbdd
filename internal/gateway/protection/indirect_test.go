package protection

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// TestChangedIndirectly has requests take away a label or replicas without naming them: an apply leaves out what an earlier one owns, a patch has
// directives, and bodies are in CBOR.
func TestChangedIndirectly(t *testing.T) {
	none := intstr.FromInt32(0)
	s := startServer(t, &cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "labelled"}, Spec: cellplanev1alpha1.ProtectionPolicySpec{
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"precious": "yes"}}}},
		ScaleDown:         &cellplanev1alpha1.ScaleDownProtection{MaxDecrease: &none},
	}})
	namespace := newNamespace(t, s.client)
	path := "/apis/apps/v1/namespaces/" + namespace + "/deployments/d"
	applied := func(labels, replicas string) string {
		return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"%s},"spec":{%s"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, labels, replicas)
	}
	const labels, replicas = `,"labels":{"precious":"yes"}`, `"replicas":10,`
	asCBOR := func(content map[string]any) string {
		body, err := direct.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if code, answer := s.do(t, "patch", http.MethodPatch, path+"?fieldManager=owner", string(types.ApplyYAMLPatchType), []byte(applied(labels, replicas))); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	for name, test := range map[string]struct {
		verb, method, query, contentType, body string
		want                                   int
	}{
		"apply without the label":    {"patch", http.MethodPatch, "?fieldManager=owner", string(types.ApplyYAMLPatchType), applied("", replicas), http.StatusForbidden},
		"apply without replicas":     {"patch", http.MethodPatch, "?fieldManager=owner", string(types.ApplyYAMLPatchType), applied(labels, ""), http.StatusForbidden},
		"apply by force":             {"patch", http.MethodPatch, "?fieldManager=other&force=true", string(types.ApplyYAMLPatchType), applied(labels, `"replicas":1,`), http.StatusForbidden},
		"replaced labels":            {"patch", http.MethodPatch, "", string(types.StrategicMergePatchType), `{"metadata":{"labels":{"$patch":"replace"}}}`, http.StatusForbidden},
		"deleted labels":             {"patch", http.MethodPatch, "", string(types.StrategicMergePatchType), `{"metadata":{"labels":{"$patch":"delete"}}}`, http.StatusForbidden},
		"replaced metadata":          {"patch", http.MethodPatch, "", string(types.StrategicMergePatchType), `{"metadata":{"$patch":"replace","name":"d","namespace":"` + namespace + `"}}`, http.StatusForbidden},
		"retained keys":              {"patch", http.MethodPatch, "", string(types.StrategicMergePatchType), `{"spec":{"$retainKeys":["selector","template"]}}`, http.StatusForbidden},
		"no version":                 {"patch", http.MethodPatch, "", string(types.JSONPatchType), `[{"op":"remove","path":"/metadata/resourceVersion"},{"op":"remove","path":"/metadata/labels"}]`, http.StatusForbidden},
		"a patch in CBOR":            {"patch", http.MethodPatch, "?fieldManager=owner&force=true", string(types.ApplyCBORPatchType), asCBOR(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d"}, "spec": map[string]any{"replicas": int64(0)}}), http.StatusBadRequest},
		"a replacement in CBOR":      {"update", http.MethodPut, "", "application/cbor", asCBOR(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d"}, "spec": map[string]any{"replicas": int64(0)}}), http.StatusBadRequest},
		"options in CBOR":            {"delete", http.MethodDelete, "", "application/cbor", asCBOR(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}), http.StatusBadRequest},
		"apply that changes nothing": {"patch", http.MethodPatch, "?fieldManager=owner", string(types.ApplyYAMLPatchType), applied(labels, replicas), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if code, answer := s.do(t, test.verb, test.method, path+test.query, test.contentType, []byte(test.body)); code != test.want {
				t.Errorf("%d %s, want %d", code, answer, test.want)
			}
			now, err := s.client.AppsV1().Deployments(namespace).Get(t.Context(), "d", metav1.GetOptions{})
			if err != nil || *now.Spec.Replicas != 10 || now.Labels["precious"] != "yes" {
				t.Fatalf("the object is there: %v, with %v", err, now)
			}
		})
	}
}
