package engine_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
)

// gates is the definition of a custom kind with a list whose keys are port and protocol; the protocol has a default.
func gates() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	entry := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"port"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"port": {Type: "integer"}, "protocol": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"TCP"`)}}, "name": text,
	}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gates.example.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.org", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gates", Singular: "gate", Kind: "Gate", ListKind: "GateList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"ports": {
						Type: "array", XListType: ptr.To("map"), XListMapKeys: []string{"port", "protocol"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &entry},
					}}},
				}}},
			}},
		},
	}
}

// P22: lists of custom kinds are merged as their definitions say: an entry that the member added stays when the
// template changes, also when the template drops an entry of its own.
func TestListsOfCustomKindsAreMerged(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, gates())
	createIn(t, members["member1"], gates(), namespaceRef(ns))
	gate := func() *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Gate"}}
		obj.SetNamespace(ns)
		obj.SetName("g")
		return obj
	}
	port := func(number int64, name string) map[string]any { return map[string]any{"port": number, "name": name} }
	set := func(obj *unstructured.Unstructured, ports ...any) {
		obj.Object["spec"] = map[string]any{"ports": ports}
	}
	p := policy(ns, "p", nil, inMembers("member1"))
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "example.org/v1", Kind: "Gate"}}
	create(t, p)
	testenv.Eventually(t, "the cell serves gates", func(ctx context.Context) (bool, error) {
		obj := gate()
		set(obj, port(80, "web"), port(443, "secure"))
		err := cell.Create(ctx, obj)
		return err == nil, err
	})
	has := func(what string, want ...any) {
		t.Helper()
		until(t, what, members["member1"], gate(), func(obj *unstructured.Unstructured) bool {
			ports, _, _ := unstructured.NestedSlice(obj.Object, "spec", "ports")
			return cmp.Equal(ports, want)
		})
	}
	complete := func(entry map[string]any, protocol string) map[string]any {
		entry["protocol"] = protocol
		return entry
	}
	has("it is there, with what the member's API server fills in", complete(port(80, "web"), "TCP"), complete(port(443, "secure"), "TCP"))

	edit(t, ctrlclient.Client(members["member1"]), gate(), func(obj *unstructured.Unstructured) {
		ports, _, _ := unstructured.NestedSlice(obj.Object, "spec", "ports")
		set(obj, append(ports, complete(port(80, "quic"), "UDP"))...)
	})
	edit(t, cell, gate(), func(obj *unstructured.Unstructured) { set(obj, port(80, "front"), port(443, "secure")) })
	has("the member's own entry stays", complete(port(80, "front"), "TCP"), complete(port(443, "secure"), "TCP"), complete(port(80, "quic"), "UDP"))

	edit(t, cell, gate(), func(obj *unstructured.Unstructured) { set(obj, port(80, "front")) })
	has("the template's goes", complete(port(80, "front"), "TCP"), complete(port(80, "quic"), "UDP"))
}

// P18: two templates of the same name and kind, of different groups, would share a binding. The second is refused with
// an event, the first is not affected.
func TestKindsOfOneName(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "configmaps.example.net"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.net", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "configmaps", Singular: "configmap", Kind: "ConfigMap", ListKind: "ConfigMapList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	})
	p := policy(ns, "p", []string{"ConfigMap"}, inMembers("member1"))
	p.Spec.ResourceSelectors = append(p.Spec.ResourceSelectors, policyv1alpha1.ResourceSelector{APIVersion: "example.net/v1", Kind: "ConfigMap"})
	create(t, p, configMap(ns, "same", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "same", "k", "1")
	testenv.Eventually(t, "the cell serves the other kind", func(ctx context.Context) (bool, error) {
		other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.net/v1", "kind": "ConfigMap"}}
		other.SetNamespace(ns)
		other.SetName("same")
		err := cell.Create(ctx, other)
		return err == nil, err
	})
	if e := event(t, cell, ns, "same", names.EventApplyPolicyFailed); e.InvolvedObject.APIVersion != "example.net/v1" {
		t.Errorf("the event is about %+v", e.InvolvedObject)
	}
	edit(t, cell, configMapRef(ns, "same"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	delivered(t, "member1", ns, "same", "k", "2")
}
