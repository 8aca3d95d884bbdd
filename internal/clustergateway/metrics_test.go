package clustergateway_test

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

// testMetrics adds metrics to members and reads them through the gateway.
func testMetrics(t *testing.T, w *world) {
	namespace := w.namespace(t, "metrics")
	out := &kubectltest.Output{}
	if err := w.kubectl.To(t.Context(), t, out, "", "top", "pods", "-A"); err == nil || !strings.Contains(out.String(), "Metrics API not available") {
		t.Errorf("without metrics kubectl top returned %v: %s", err, out)
	}
	for i, pod := range []string{"one", "two"} {
		w.putMetrics(t, i, namespace, pod)
	}
	// The hub manager would report the API in the status.
	hub, err := dynamic.NewForConfig(w.config(t, w.Hub))
	check(t, err)
	_, err = hub.Resource(clusterv1alpha1.GroupVersion.WithResource("clusters")).Patch(t.Context(), "member1", types.MergePatchType,
		[]byte(`{"status":{"apiEnablements":[{"groupVersion":"metrics.k8s.io/v1beta1","resources":[{"name":"pods","kind":"PodMetrics"}]}]}}`), metav1.PatchOptions{}, "status")
	check(t, err)
	testenv.Eventually(t, "kubectl top shows the pods of both members", func(ctx context.Context) (bool, error) {
		out := &kubectltest.Output{}
		err := w.kubectl.To(ctx, t, out, "", "top", "pods", "-n", namespace)
		said := out.String()
		return err == nil && strings.Contains(said, "one") && strings.Contains(said, "two") && strings.Contains(said, "250m"), err
	})
	if said := w.kubectl.Must(t, "top", "pod", "two", "-n", namespace); !strings.Contains(said, "250m") || strings.Contains(said, "one") {
		t.Errorf("kubectl top pod two printed:\n%s", said)
	}
}

// putMetrics stores the metrics of a pod in a member, as a custom resource.
func (w *world) putMetrics(t *testing.T, member int, namespace, pod string) {
	t.Helper()
	config := w.config(t, w.Members[member])
	definitions, err := clientset.NewForConfig(config)
	check(t, err)
	create(t, definitions.ApiextensionsV1().CustomResourceDefinitions().Create, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "pods.metrics.k8s.io", Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "metrics.k8s.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "pods", Singular: "podmetrics", Kind: "PodMetrics", ListKind: "PodMetricsList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	})
	objects, err := dynamic.NewForConfig(config)
	check(t, err)
	metrics := objects.Resource(schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"}).Namespace(namespace)
	testenv.Eventually(t, "the member has metrics", func(ctx context.Context) (bool, error) {
		_, err := metrics.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": map[string]any{"name": pod},
			"timestamp": "2026-01-02T03:04:05Z", "window": "15s",
			"containers": []any{map[string]any{"name": "main", "usage": map[string]any{"cpu": "250m", "memory": "64Mi"}}},
		}}, metav1.CreateOptions{})
		return err == nil, err
	})
}
