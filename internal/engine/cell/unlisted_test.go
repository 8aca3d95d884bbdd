package cell_test

import (
	"context"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// A kind that cannot be listed, because its conversion webhook fails, delays no other kind. It is cached as soon as it
// can be listed.
func TestUnlistedKind(t *testing.T) {
	federation := testenv.StartFederation(t, local.Spec{})
	admin, config, err := enginetest.Connect(federation.Hub)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: stored, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
		}}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/convert")},
			}},
		},
	}
	if err := admin.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	stored := objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}}}
	testenv.Eventually(t, "a widget is stored", func(ctx context.Context) (bool, error) {
		_, err := stored.Create(ctx, widget, metav1.CreateOptions{})
		return err == nil, err
	})
	offered := objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}).Namespace("default")
	testenv.Eventually(t, "widgets are served and cannot be listed", func(ctx context.Context) (bool, error) {
		_, err := offered.List(ctx, metav1.ListOptions{})
		served, discovery := admin.RESTMapper().RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"}, "v2")
		return err != nil && discovery == nil && served != nil, discovery
	})

	state, err := cell.New(config, cell.Options{Name: "hub"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := state.Start(ctx); err != nil {
		t.Fatalf("the cell does not start: %v", err)
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}
	if state.Templates.Kind(kind) == nil || state.Templates.Known(kind) {
		t.Fatal("a kind that cannot be listed is not watched, or counts as known")
	}
	if deployments := (schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}); !state.Templates.Known(deployments) {
		t.Error("Deployments are not known")
	}

	without := ctrlclient.RawPatch(types.MergePatchType, []byte(`{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`))
	if err := admin.Patch(t.Context(), definition, without); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the widget is cached", func(context.Context) (bool, error) {
		return state.Templates.Get(cell.TemplateKey{GroupVersionKind: kind, Key: cell.Key{Namespace: "default", Name: "w"}}) != nil, nil
	})
}
