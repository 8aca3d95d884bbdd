package userpolicies

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/cellplane/cellplane/internal/userpolicy"
)

func TestDecode(t *testing.T) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	policy.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: "1"}}
	policy.SetGroupVersionKind(schema.GroupVersionKind{Group: userpolicy.Group, Version: "v1", Kind: "ValidatingAdmissionPolicy"})
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(policy, &encoded); err != nil {
		t.Fatal(err)
	}
	const inJSON = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":{"variables":[{"name":"v"}],"unknown":1}}`
	for name, test := range map[string]struct{ contentType, content, problem string }{
		"JSON":       {"application/json; charset=utf-8", inJSON, ""},
		"no type":    {"", inJSON, ""},
		"YAML":       {"application/yaml", "{metadata: {name: p}, spec: {variables: [{name: v}]}}", ""},
		"apply":      {"application/apply-patch+yaml", inJSON, ""},
		"protobuf":   {"application/vnd.kubernetes.protobuf", encoded.String(), ""},
		"CBOR":       {"application/cbor", "", "not in application/cbor"},
		"no JSON":    {"application/json", "{", "not a JSON object"},
		"null":       {"application/json", "null", "empty"},
		"a list":     {"application/json", "[]", "not a JSON object"},
		"wrong type": {"a/b/c", "{}", "cannot be read"},
		"no proto":   {"application/vnd.kubernetes.protobuf", "x", "cannot be decoded"},
	} {
		object, err := decode(test.contentType, []byte(test.content))
		if (err != nil) != (test.problem != "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %v, want %q", name, err, test.problem)
		}
		if err != nil {
			continue
		}
		spec, _ := object["spec"].(map[string]any)
		variables, _ := spec["variables"].([]any)
		if nameOf(&request.RequestInfo{}, object) != "p" || len(variables) != 1 {
			t.Errorf("%s: got %v", name, object)
		}
		if name == "JSON" && spec["unknown"] == nil {
			t.Error("an unknown field is lost, so that the hub cannot report it")
		}
	}
}

func TestSpareOwn(t *testing.T) {
	for query, want := range map[string]string{"": "!cellplane.io/admission", "?labelSelector=a%3Db&limit=5": "a=b,!cellplane.io/admission"} {
		r := httptest.NewRequest(http.MethodDelete, "/x"+query, http.NoBody)
		spareOwn(r)
		if got := r.URL.Query().Get("labelSelector"); got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
}
