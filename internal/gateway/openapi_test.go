package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	describedGroup = "apis/described.example.io/v1"
	protobufV3     = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// testDescriptions defines kinds that one cell gets later than the others. No OpenAPI document may describe them before.
func testDescriptions(t *testing.T, w *world) {
	hub, late := adminOf(t, w.Hub), adminOf(t, w.Cells[2])
	early := []*rest.Config{hub, adminOf(t, w.Cells[0]), adminOf(t, w.Cells[1])}

	// The document of a group version with no other kinds is omitted.
	defineDescribed(t, "First", early...)
	waitDescribed(t, "the hub", hub, "firsts")
	w.useDescribed(t, "First")
	if forms, address := describedBy(t, w.gateway.Config(t)); address != "" || forms[0]+forms[1] != "" {
		t.Errorf("the gateway describes the first kind before every cell serves it: at %q, %.200q", address, forms)
	}
	checkOlder(t, w.gateway.Config(t), "firsts", false)
	defineDescribed(t, "First", late)
	waitDescribed(t, "the gateway", w.gateway.Config(t), "firsts")
	checkOlder(t, w.gateway.Config(t), "firsts", true)

	// In a document with another kind, only the new kind is omitted. The hash changes, so clients do not use the old document later.
	defineDescribed(t, "Second", early...)
	waitDescribed(t, "the hub", hub, "seconds")
	w.useDescribed(t, "Second")
	forms, before := describedBy(t, w.gateway.Config(t))
	for _, document := range forms {
		if !strings.Contains(document, "/firsts") || strings.Contains(document, "/seconds") || strings.Contains(document, "v1.Second") {
			t.Errorf("the document with one missing kind is %.2000q", document)
		}
	}
	checkOlder(t, w.gateway.Config(t), "seconds", false)
	checkOlder(t, w.gateway.Config(t), "firsts", true)
	defineDescribed(t, "Second", late)
	waitDescribed(t, "the gateway", w.gateway.Config(t), "seconds")
	checkOlder(t, w.gateway.Config(t), "seconds", true)
	if _, after := describedBy(t, w.gateway.Config(t)); after == before {
		t.Error("the filtered document has the same hash")
	}
	checkSame(t, hub, w.gateway.Config(t))
}

// defineDescribed defines a kind in some control planes.
func defineDescribed(t *testing.T, kind string, planes ...*rest.Config) {
	t.Helper()
	singular := strings.ToLower(kind)
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s.described.example.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "described.example.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: singular + "s", Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
	for _, plane := range planes {
		client, err := clientset.NewForConfig(plane)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition.DeepCopy(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// useDescribed creates an object of a kind in the first cell through the gateway: the gateway knows the kind then.
func (w *world) useDescribed(t *testing.T, kind string) {
	t.Helper()
	client, err := dynamic.NewForConfig(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for i := 0; name == "" || ownerOf(t, w, "default", name) != 0; i++ {
		name = fmt.Sprintf("described-%d", i)
	}
	resource := schema.GroupVersionResource{Group: "described.example.io", Version: "v1", Resource: strings.ToLower(kind) + "s"}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "described.example.io/v1", "kind": kind, "metadata": map[string]any{"name": name}}}
	testenv.Eventually(t, kind+" can be created", func(ctx context.Context) (bool, error) {
		_, err := client.Resource(resource).Namespace("default").Create(ctx, object, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
}

// describedBy returns the OpenAPI 3 documents of the group of this test in both content types, and their address.
func describedBy(t *testing.T, config *rest.Config) (forms [2]string, address string) {
	t.Helper()
	groups, err := clientFor(t, config).Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	if group := groups[describedGroup]; group != nil {
		address = group.ServerRelativeURL()
	}
	for i, accept := range []string{"application/json", protobufV3} {
		if response := send(t, config, http.MethodGet, "/openapi/v3/"+describedGroup, http.Header{"Accept": {accept}}, ""); response.StatusCode != http.StatusNotFound {
			forms[i] = string(readOK(t, response))
		}
	}
	return forms, address
}

// waitDescribed waits until all documents of an API server describe a resource.
func waitDescribed(t *testing.T, who string, config *rest.Config, resource string) {
	t.Helper()
	testenv.Eventually(t, who+" describes "+resource, func(context.Context) (bool, error) {
		forms, address := describedBy(t, config)
		return address != "" && strings.Contains(forms[0], "/"+resource) && strings.Contains(forms[1], "/"+resource) &&
			olderPaths(t, config)["/"+describedGroup+"/"+resource], nil
	})
}

// checkOlder checks whether OpenAPI 2 describes a resource.
func checkOlder(t *testing.T, config *rest.Config, resource string, want bool) {
	t.Helper()
	if got := olderPaths(t, config)["/"+describedGroup+"/"+resource]; got != want {
		t.Errorf("OpenAPI 2 describes %s: %v, want %v", resource, got, want)
	}
}

func olderPaths(t *testing.T, config *rest.Config) map[string]bool {
	t.Helper()
	document, err := clientFor(t, config).Discovery().OpenAPISchema() // in protobuf
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range document.GetPaths().GetPath() {
		found[path.GetName()] = true
	}
	return found
}

// checkSame checks that all documents equal the hub's, because every cell serves everything.
func checkSame(t *testing.T, hub, gateway *rest.Config) {
	t.Helper()
	if want, got := olderPaths(t, hub), olderPaths(t, gateway); !maps.Equal(got, want) {
		t.Errorf("OpenAPI 2 has %d paths, the hub %d", len(got), len(want))
	}
	want, err := clientFor(t, hub).Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	got, err := clientFor(t, gateway).Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("the index has %v, the hub %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for path, document := range got {
		ours, err := document.Schema("application/json") // by the address with the hash
		if err != nil {
			t.Fatal(fmt.Errorf("reading %s: %w", path, err))
		}
		if theirs, err := want[path].Schema("application/json"); err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("%s differs from the hub's: %v", path, err)
		}
	}
}
