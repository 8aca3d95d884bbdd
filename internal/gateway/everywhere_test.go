package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/discovery"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

func testDeleteCollection(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "delete-collection")
	for _, encoding := range encodings {
		maps := w.clientWith(t, encoding).CoreV1().ConfigMaps(namespace)
		fill(t, w.client, namespace, 12)
		if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "third=yes"}); err != nil {
			t.Fatal(err)
		}
		if left, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 8 {
			t.Errorf("%s: %d are left, want 8: %v", encoding, len(left.Items), err)
		}
		if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if left, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
			t.Errorf("%s: %d are left, want none: %v", encoding, len(left.Items), err)
		}
	}
	testDeletePages(t, w, namespace)
}

// testDeletePages deletes with a limit: each request deletes one page, and its token continues.
func testDeletePages(t *testing.T, w *world, namespace string) {
	t.Helper()
	fill(t, w.client, namespace, 12)
	query := url.Values{"limit": {"5"}}
	for _, want := range []int{7, 2, 0} {
		response := w.do(t, http.MethodDelete, "/api/v1/namespaces/"+namespace+"/configmaps", query, nil, nil)
		var page metav1.PartialObjectMetadataList
		if err := json.Unmarshal(readOK(t, response), &page); err != nil {
			t.Fatal(err)
		}
		left, err := w.client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != want {
			t.Fatalf("%d are left, want %d: %v", len(left.Items), want, err)
		}
		if (want > 0) != (page.Continue != "") {
			t.Errorf("with %d left, the token is %q", want, page.Continue)
		}
		query.Set("continue", page.Continue)
	}
}

// testEvents finds events that were written in any cell, whatever their slots, in both API groups.
func testEvents(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "events")
	for i, cell := range w.Cells {
		events := clientFor(t, adminOf(t, cell)).CoreV1().Events(namespace)
		for j := range 3 {
			if _, err := events.Create(t.Context(), &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("event-%d-%d", i, j)},
				InvolvedObject: corev1.ObjectReference{Kind: "Deployment", Namespace: namespace, Name: fmt.Sprintf("web-%d", j)},
				Reason:         "Tested",
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := w.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web-1,involvedObject.kind=Deployment"})
	if err != nil || len(list.Items) != len(w.Cells) {
		t.Errorf("found %d events of an object, want one of each cell: %v", len(list.Items), err)
	}
	for i := range w.Cells {
		name := fmt.Sprintf("event-%d-2", i)
		if _, err := w.client.CoreV1().Events(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := w.client.EventsV1().Events(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := w.client.CoreV1().Events(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.client.CoreV1().Events(namespace).Get(t.Context(), "nothing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a missing event: %v, want 404", err)
	}
}

// testSurfaces uses the API under /federation.
func testSurfaces(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "surfaces")
	fill(t, w.client, namespace, 5)
	config := w.gateway.Config(t)
	config.Host += "/federation"
	client := clientFor(t, config)
	if list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 5 {
		t.Errorf("listed %d: %v", len(list.Items), err)
	}
	if _, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "map-001", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Discovery().ServerPreferredResources(); err != nil {
		t.Error(err)
	}
}

// testDiscovery reads all forms of discovery, and those of a gateway that announces little.
func testDiscovery(t *testing.T, w *world) {
	for path, part := range map[string]string{
		"/api": `"versions":["v1"]`, "/apis": `"name":"apps"`, "/api/v1": `"name":"configmaps"`, "/apis/apps": `"version":"v1"`, "/apis/apps/v1": `"name":"deployments/scale"`,
		"/apis/cluster.karmada.io/v1alpha1": `"name":"clusters/proxy"`, "/openapi/v3": `"paths"`, "/version": `"gitVersion"`,
	} {
		if body := string(w.get(t, path, nil, "application/json")); !strings.Contains(strings.ReplaceAll(body, ": ", ":"), part) {
			t.Errorf("%s lacks %s: %.300s", path, part, body)
		}
	}
	list, err := w.client.Discovery().ServerResourcesForGroupVersion("apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.APIResources {
		want := discovery.StorageVersionHash("apps", "v1", list.APIResources[i].Kind)
		if strings.Contains(list.APIResources[i].Name, "/") {
			want = ""
		}
		if got := list.APIResources[i].StorageVersionHash; got != want {
			t.Errorf("the storage version hash of %s is %q, want %q", list.APIResources[i].Name, got, want)
		}
	}
	if response := w.do(t, http.MethodGet, "/apis/no.such.group/v1", nil, nil, nil); response.StatusCode != http.StatusNotFound {
		t.Errorf("a group that is not there: %s", response.Status)
	}
	small := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.Expose = []string{"configmaps", "deployments.apps"} })
	testenv.Eventually(t, "only what is exposed is announced", func(context.Context) (bool, error) {
		_, lists, err := small.Client(t).Discovery().ServerGroupsAndResources()
		var found []string
		for _, list := range lists {
			for _, resource := range list.APIResources {
				if !strings.Contains(resource.Name, "/") {
					found = append(found, resource.Name)
				}
			}
		}
		slices.Sort(found)
		return slices.Equal(found, []string{"configmaps", "deployments"}), fmt.Errorf("%v: %w", found, err)
	})
	checkDescriptions(t, small)
}

// checkDescriptions reads the OpenAPI documents of a gateway that exposes config maps and deployments, in every form.
func checkDescriptions(t *testing.T, g *gatewaytest.Gateway) {
	t.Helper()
	const deployments, daemonSets = "/apis/apps/v1/namespaces/{namespace}/deployments", "/apis/apps/v1/namespaces/{namespace}/daemonsets"
	client := g.Client(t).Discovery()
	older, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range older.GetPaths().GetPath() {
		found[path.GetName()] = true
	}
	if !found[deployments] || found[daemonSets] {
		t.Errorf("OpenAPI v2 has %d paths", len(found))
	}
	groups, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	if groups["api/v1"] == nil || groups["apis/apps/v1"] == nil || groups["apis/batch/v1"] != nil {
		t.Fatalf("OpenAPI v3 has %v", slices.Sorted(maps.Keys(groups)))
	}
	for _, form := range []string{"application/json", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"} {
		document, err := groups["apis/apps/v1"].Schema(form)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(document), deployments) || strings.Contains(string(document), daemonSets) || strings.Contains(string(document), "io.k8s.api.apps.v1.DaemonSetSpec") {
			t.Errorf("%s of apps has %d bytes", form, len(document))
		}
	}
	kubectl := kubectltest.Kubectl(g.Kubeconfig(t))
	if out := kubectl.Must(t, "explain", "deployment.spec.replicas"); !strings.Contains(out, "FIELD: replicas") {
		t.Errorf("kubectl explain says %s", out)
	}
	if response := send(t, g.Config(t), http.MethodGet, "/openapi/v3/apis/no.such.group/v1", nil, ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("a group that is not there: %s", response.Status)
	}
}

// testControlPlaneNamespaces checks that objects of the control plane's own namespaces in cells are not shown.
func testControlPlaneNamespaces(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "beside-control-plane")
	secrets := w.client.CoreV1().Secrets("")
	copyEverywhere := func(name string) {
		t.Helper()
		for _, cell := range w.Cells {
			if _, err := clientFor(t, adminOf(t, cell)).CoreV1().Secrets(names.SystemNamespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	copyEverywhere("copied-before")
	list, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Namespace == names.SystemNamespace {
			t.Errorf("a list shows %s of the control plane", list.Items[i].Name)
		}
	}
	stream, err := secrets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	copyEverywhere("copied-later")
	for i := range 6 { // some in each cell
		name := fmt.Sprintf("seen-%d", i)
		if _, err := w.client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if secret, ok := next(t, stream).Object.(*corev1.Secret); !ok || secret.Name != name {
			t.Errorf("a watch shows %v, want %s", secret, name)
		}
	}
}
