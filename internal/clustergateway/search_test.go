package clustergateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	searchv1alpha1 "github.com/cellplane/cellplane/api/search/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustergateway/index/opensearch/opensearchtest"
	"github.com/cellplane/cellplane/internal/testenv"
)

const (
	searchPath   = "/apis/search.karmada.io/v1alpha1/search/cache"
	proxyingPath = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"
	cachedFrom   = "resource.karmada.io/cached-from-cluster"
)

var (
	services   = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	widgets    = schema.GroupVersionResource{Group: "search.example.io", Version: "v1", Resource: "widgets"}
	registries = searchv1alpha1.GroupVersion.WithResource("resourceregistries")
)

// testSearch selects Services, which both members have, and Widgets, which only one serves.
func testSearch(t *testing.T, w *world) {
	s := &searching{world: w, namespace: w.namespace(t, "searching"), admin: w.gateway.Config(t)}
	w.service(t, 0, s.namespace, "web", map[string]string{"tier": "front"})
	w.service(t, 1, s.namespace, "web", map[string]string{"tier": "front"})
	w.service(t, 1, s.namespace, "only", nil)
	s.defineWidgets(t)
	s.register(t, "services", searchv1alpha1.ResourceRegistrySpec{ResourceSelectors: []searchv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Service"}}})
	s.register(t, "same", searchv1alpha1.ResourceRegistrySpec{
		TargetCluster:     policyv1alpha1.ClusterAffinity{ClusterNames: []string{"member2"}},
		ResourceSelectors: []searchv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Service", Namespace: s.namespace}},
	})
	s.awaitCondition(t, "services", metav1.ConditionTrue, "Cached", "cached from 2 clusters")
	s.awaitCondition(t, "same", metav1.ConditionTrue, "Cached", "cached from 1 clusters")
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Cache", s.testCache},
		{"Proxying", s.testProxying},
		{"Watch", s.testWatch},
		{"Writes", s.testWrites},
		{"Custom", s.testCustom},
		{"Rights", s.testRights},
		{"Discovery", s.testDiscovery},
		{"Index", s.testIndex},
		{"Deleted", s.testDeleted},
	} {
		t.Run(test.name, test.run)
	}
}

type searching struct {
	*world
	namespace string
	admin     *rest.Config
}

func (w *world) service(t testing.TB, member int, namespace, name string, labels map[string]string) {
	t.Helper()
	create(t, w.members[member].CoreV1().Services(namespace).Create, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
}

// defineWidgets defines a kind in the first member.
func (s *searching) defineWidgets(t *testing.T) {
	config := s.config(t, s.Members[0])
	client, err := clientset.NewForConfig(config)
	check(t, err)
	preserve := true
	create(t, client.ApiextensionsV1().CustomResourceDefinitions().Create, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + widgets.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve},
			}}},
		},
	})
	dynamically := dynamicFor(t, config)
	testenv.Eventually(t, "widgets can be created", func(ctx context.Context) (bool, error) {
		_, err := dynamically.Resource(widgets).Namespace(s.namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "search.example.io/v1", "kind": "Widget", "metadata": map[string]any{"name": "wheel", "labels": map[string]any{"size": "large"}},
			"spec": map[string]any{"spokes": int64(36), "rim": "steel"},
		}}, metav1.CreateOptions{})
		return err == nil, err
	})
}

func dynamicFor(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	check(t, err)
	return client
}

// proxied returns a client of all clusters as one.
func proxied(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Host += proxyingPath
	return dynamicFor(t, config)
}

func (s *searching) register(t *testing.T, name string, spec searchv1alpha1.ResourceRegistrySpec) {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&searchv1alpha1.ResourceRegistry{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	check(t, err)
	registry := &unstructured.Unstructured{Object: object}
	registry.SetGroupVersionKind(searchv1alpha1.GroupVersion.WithKind("ResourceRegistry"))
	check(t, second(dynamicFor(t, s.admin).Resource(registries).Create(t.Context(), registry, metav1.CreateOptions{})))
}

func (s *searching) awaitCondition(t *testing.T, name string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	s.awaitConditionOf(t, "Cached", name, status, reason, message)
}

func (s *searching) awaitConditionOf(t *testing.T, of, name string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	client := dynamicFor(t, s.admin).Resource(registries)
	testenv.Eventually(t, fmt.Sprintf("%s is %s %s", name, reason, message), func(ctx context.Context) (bool, error) {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		var registry searchv1alpha1.ResourceRegistry
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &registry); err != nil {
			return false, err
		}
		for _, c := range registry.Status.Conditions {
			if c.Type == of && c.Status == status && c.Reason == reason && strings.Contains(c.Message, message) {
				return true, nil
			}
		}
		return false, fmt.Errorf("the conditions are %v", registry.Status.Conditions)
	})
}

// cached returns the answer of search/cache.
func (s *searching) cached(ctx context.Context, config *rest.Config, path string, query url.Values) (*unstructured.UnstructuredList, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	r := client.Discovery().RESTClient().Get().AbsPath(searchPath + path)
	for key, values := range query {
		r = r.Param(key, values[0])
	}
	body, err := r.DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	return list, json.Unmarshal(body, &list)
}

// fetch returns an answer as it is.
func (s *searching) fetch(t *testing.T, path string) (code int, body string) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.admin)
	check(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.admin.Host+path, nil)
	check(t, err)
	response, err := client.Do(request)
	check(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	check(t, err)
	return response.StatusCode, string(content)
}

// found returns the objects of a list as name/cluster.
func found(list *unstructured.UnstructuredList) string {
	if list == nil {
		return ""
	}
	var all []string
	for _, item := range list.Items {
		all = append(all, item.GetName()+"/"+item.GetAnnotations()[cachedFrom])
	}
	return strings.Join(all, " ")
}

const allServices = "only/member2 web/member1 web/member2"

func (s *searching) testCache(t *testing.T) {
	inNamespace := "/api/v1/namespaces/" + s.namespace + "/services"
	for _, test := range []struct {
		path  string
		query url.Values
		want  string
	}{
		{inNamespace, nil, allServices},
		{"/api/v1/services", url.Values{"fieldSelector": {"metadata.namespace=" + s.namespace}}, allServices},
		{inNamespace + "/web", nil, "web/member1 web/member2"},
		{inNamespace + "/none", nil, ""},
		{inNamespace, url.Values{"labelSelector": {"tier=front"}}, "web/member1 web/member2"},
		{inNamespace, url.Values{"labelSelector": {"cellplane.io/cluster=member2"}}, "only/member2 web/member2"},
		{inNamespace, url.Values{"fieldSelector": {"metadata.name=only"}}, "only/member2"},
	} {
		list, err := s.cached(t.Context(), s.admin, test.path, test.query)
		if err != nil || found(list) != test.want || list.GetKind() != "List" || list.GetAPIVersion() != "v1" {
			t.Errorf("%s?%s is a %s of %q, %v; want %q", test.path, test.query.Encode(), list.GetKind(), found(list), err, test.want)
		}
	}
	var pages []string
	for token := ""; ; {
		list, err := s.cached(t.Context(), s.admin, inNamespace, url.Values{"limit": {"1"}, "continue": {token}})
		check(t, err)
		pages = append(pages, found(list))
		if token = list.GetContinue(); token == "" {
			break
		}
	}
	if got := strings.Join(pages, " "); got != allServices {
		t.Errorf("page by page: %s", got)
	}
	if code, body := s.fetch(t, searchPath+"/apis/apps/v1/deployments"); code != http.StatusNotFound || !strings.Contains(body, "no ResourceRegistry selects it") {
		t.Errorf("what is not selected: %d %s", code, body)
	}
	if _, err := s.cached(t.Context(), s.admin, inNamespace, url.Values{"watch": {"true"}}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a watch: %v", err)
	}
}

func (s *searching) testProxying(t *testing.T) {
	client := proxied(t, s.admin)
	list, err := client.Resource(services).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || found(list) != allServices || list.GetKind() != "ServiceList" {
		t.Errorf("the list is a %s of %s, %v", list.GetKind(), found(list), err)
	}
	one, err := client.Resource(services).Namespace(s.namespace).Get(t.Context(), "only", metav1.GetOptions{})
	if err != nil || one.GetAnnotations()[cachedFrom] != "member2" {
		t.Errorf("the object is %v, %v", one, err)
	}
	_, err = client.Resource(services).Namespace(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "ambiguous objects in clusters [member1, member2]") {
		t.Errorf("an object of two clusters: %v", err)
	}
	if _, err := client.Resource(services).Namespace(s.namespace).Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("no object: %v", err)
	}
	// Other resources are those of the federation.
	create(t, s.client.CoreV1().ConfigMaps(s.namespace).Create, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "template"}})
	maps, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=template"})
	if err != nil || found(maps) != "template/" {
		t.Errorf("what is not selected: %s, %v", found(maps), err)
	}
	typed := rest.CopyConfig(s.admin)
	typed.Host += proxyingPath
	typed.ContentType = runtime.ContentTypeProtobuf
	decoded, err := clientFor(t, typed).CoreV1().Services(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(decoded.Items) != 3 || decoded.Items[0].Spec.Ports[0].Port != 80 {
		t.Errorf("in protobuf: %v, %v", decoded, err)
	}
}

func (s *searching) testWatch(t *testing.T) {
	client := proxied(t, s.admin).Resource(services).Namespace(s.namespace)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	check(t, err)
	watcher, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), FieldSelector: "metadata.name=watched"})
	check(t, err)
	defer watcher.Stop()
	expect := func(kind watch.EventType, cluster string) {
		t.Helper()
		event := <-watcher.ResultChan()
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type != kind || object.GetName() != "watched" || object.GetAnnotations()[cachedFrom] != cluster {
			t.Fatalf("got %v, want %s in %s", event, kind, cluster)
		}
	}
	s.service(t, 0, s.namespace, "watched", nil)
	expect(watch.Added, "member1")
	s.service(t, 1, s.namespace, "watched", nil)
	expect(watch.Added, "member2")
	check(t, s.members[0].CoreV1().Services(s.namespace).Delete(t.Context(), "watched", metav1.DeleteOptions{}))
	expect(watch.Deleted, "member1")
	check(t, s.members[1].CoreV1().Services(s.namespace).Delete(t.Context(), "watched", metav1.DeleteOptions{}))
	expect(watch.Deleted, "member2")
}

func (s *searching) testWrites(t *testing.T) {
	client := proxied(t, s.admin).Resource(services).Namespace(s.namespace)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	check(t, err)
	// An update goes to the cluster that it was read from.
	at := slices.IndexFunc(list.Items, func(o unstructured.Unstructured) bool {
		return o.GetName() == "web" && o.GetAnnotations()[cachedFrom] == "member2"
	})
	changed := list.Items[at].DeepCopy()
	changed.SetLabels(map[string]string{"tier": "back"})
	check(t, second(client.Update(t.Context(), changed, metav1.UpdateOptions{})))
	for i, want := range []string{"front", "back"} {
		live, err := s.members[i].CoreV1().Services(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || live.Labels["tier"] != want || live.Annotations[cachedFrom] != "" {
			t.Errorf("in member %d it is %v, %v", i, live.ObjectMeta, err)
		}
	}
	if err := second(client.Update(t.Context(), changed, metav1.UpdateOptions{})); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	if err := second(client.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "ambiguous") {
		t.Errorf("a patch of an object of two clusters: %v", err)
	}
	patched, err := client.Patch(t.Context(), "only", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	check(t, err)
	if shown, err := client.Get(t.Context(), "only", metav1.GetOptions{}); err != nil || shown.GetResourceVersion() != patched.GetResourceVersion() {
		t.Errorf("after a patch that was answered with the version %s a get shows %v, %v", patched.GetResourceVersion(), shown, err)
	}
	live, err := s.members[1].CoreV1().Services(s.namespace).Get(t.Context(), "only", metav1.GetOptions{})
	if err != nil || live.Labels["a"] != "b" {
		t.Errorf("the patched object is %v, %v", live, err)
	}
	made := changed.DeepCopy()
	made.SetName("made")
	if err := second(client.Create(t.Context(), made, metav1.CreateOptions{})); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a creation: %v", err)
	}
	check(t, client.Delete(t.Context(), "only", metav1.DeleteOptions{}))
	if _, err := s.members[1].CoreV1().Services(s.namespace).Get(t.Context(), "only", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted object: %v", err)
	}
}

// testCustom caches custom resources, which one member does not serve, and the other one grants only later.
func (s *searching) testCustom(t *testing.T) {
	s.register(t, "widgets", searchv1alpha1.ResourceRegistrySpec{ResourceSelectors: []searchv1alpha1.ResourceSelector{{APIVersion: "search.example.io/v1", Kind: "Widget"}}})
	s.awaitCondition(t, "widgets", metav1.ConditionFalse, "Denied", "Widget of search.example.io/v1 in cluster member2 is not served")
	member := s.members[0].RbacV1()
	create(t, member.ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "search-widgets"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{widgets.Group}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch"}}}})
	create(t, member.ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "search-widgets"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "search-widgets"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "karmada-cluster", Name: "karmada-member1"}},
	})
	s.awaitCondition(t, "widgets", metav1.ConditionFalse, "NotServed", "member2")
	client := proxied(t, s.admin).Resource(widgets).Namespace(s.namespace)
	var wheel *unstructured.Unstructured
	testenv.Eventually(t, "the widget is shown", func(ctx context.Context) (_ bool, err error) {
		wheel, err = client.Get(ctx, "wheel", metav1.GetOptions{})
		return err == nil, err
	})
	if spokes, _, _ := unstructured.NestedInt64(wheel.Object, "spec", "spokes"); spokes != 36 || wheel.GetAnnotations()[cachedFrom] != "member1" || wheel.GetKind() != "Widget" {
		t.Errorf("the widget is %v", wheel)
	}
	wheel.Object["spec"].(map[string]any)["spokes"] = int64(32)
	check(t, second(client.Update(t.Context(), wheel, metav1.UpdateOptions{})))
	live, err := dynamicFor(t, s.config(t, s.Members[0])).Resource(widgets).Namespace(s.namespace).Get(t.Context(), "wheel", metav1.GetOptions{})
	check(t, err)
	if spokes, _, _ := unstructured.NestedInt64(live.Object, "spec", "spokes"); spokes != 32 || live.GetAnnotations() != nil {
		t.Errorf("in the member it is %v", live)
	}
	testenv.Eventually(t, "the change is shown", func(ctx context.Context) (bool, error) {
		list, err := s.cached(ctx, s.admin, "/apis/search.example.io/v1/widgets", url.Values{"labelSelector": {"size=large"}})
		if err != nil || found(list) != "wheel/member1" {
			return false, fmt.Errorf("%s, %w", found(list), err)
		}
		spokes, _, err := unstructured.NestedInt64(list.Items[0].Object, "spec", "spokes")
		return spokes == 32, err
	})
	rows := &metav1.Table{}
	check(t, json.Unmarshal([]byte(s.raw(t, proxyingPath+"/apis/search.example.io/v1/widgets", "application/json;as=Table;g=meta.k8s.io;v=v1")), rows))
	if len(rows.Rows) != 1 || rows.Rows[0].Cells[0] != "wheel" || rows.Rows[0].Cells[1] != "member1" {
		t.Errorf("the table is %v", rows)
	}
}

func (s *searching) raw(t *testing.T, path, accept string) string {
	t.Helper()
	body, err := s.client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(t.Context())
	check(t, err)
	return string(body)
}

// testRights checks that a user needs the right to search, and that to read what is found.
func (s *searching) testRights(t *testing.T) {
	hub := clientFor(t, s.config(t, s.Hub)).RbacV1()
	grant := func(user, name string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		create(t, hub.ClusterRoles().Create, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
		create(t, hub.ClusterRoleBindings().Create, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
	}
	search := rbacv1.PolicyRule{APIGroups: []string{"search.karmada.io"}, Resources: []string{"search", "search/api", "search/apis", "proxying", "proxying/proxy"}, Verbs: []string{"*"}}
	read := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get", "list", "watch"}}
	grant("searcher", "search-only", search)
	grant("reader", "read-only", read)
	grant("both", "search-and-read", search, read)
	at := "/api/v1/namespaces/" + s.namespace + "/services"
	both, searcher, reader := s.gateway.ConfigFor(t, "both"), s.gateway.ConfigFor(t, "searcher"), s.gateway.ConfigFor(t, "reader")
	testenv.Eventually(t, "who may search and read finds", func(ctx context.Context) (bool, error) {
		list, err := s.cached(ctx, both, at, nil)
		return err == nil && found(list) == "web/member1 web/member2", err
	})
	testenv.Eventually(t, "the reader reads", func(ctx context.Context) (bool, error) {
		_, err := clientFor(t, reader).CoreV1().Services(s.namespace).List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	list := func(config *rest.Config, resource string) error {
		return second(proxied(t, config).Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{}))
	}
	check(t, list(both, "services"))
	for what, err := range map[string]error{
		"searching without reading":        second(s.cached(t.Context(), searcher, at, nil)),
		"proxying without reading":         list(searcher, "services"),
		"reading without searching":        second(s.cached(t.Context(), reader, at, nil)),
		"reading without proxying":         list(reader, "services"),
		"reading something else":           list(both, "secrets"),
		"searching for something else":     second(s.cached(t.Context(), both, "/api/v1/secrets", nil)),
		"deleting what can only be read":   proxied(t, both).Resource(services).Namespace(s.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}),
		"searching below the same path":    second(s.cached(t.Context(), searcher, searchPath+at, nil)),
		"listing the members by a proxy":   second(proxied(t, both).Resource(schema.GroupVersionResource{Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters"}).List(t.Context(), metav1.ListOptions{})),
		"a registry, without the right to": second(dynamicFor(t, both).Resource(registries).List(t.Context(), metav1.ListOptions{})),
	} {
		if !apierrors.IsForbidden(err) && !(strings.HasPrefix(what, "searching below") && apierrors.IsBadRequest(err)) {
			t.Errorf("%s: %v, want 403", what, err)
		}
	}
}

func (s *searching) testDiscovery(t *testing.T) {
	list, err := s.client.Discovery().ServerResourcesForGroupVersion("search.karmada.io/v1alpha1")
	check(t, err)
	var all []string
	for _, resource := range list.APIResources {
		all = append(all, resource.Name)
	}
	slices.Sort(all)
	if got := strings.Join(all, " "); got != "proxying proxying/proxy resourceregistries resourceregistries/status search search/cache" {
		t.Errorf("discovery lists %s", got)
	}
}

// testIndex indexes Services in a stand-in for OpenSearch, by both replicas.
func (s *searching) testIndex(t *testing.T) {
	engine := opensearchtest.Start(t)
	create(t, s.client.CoreV1().Secrets(names.SystemNamespace).Create, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "opensearch"}, Type: corev1.SecretTypeBasicAuth, StringData: map[string]string{"username": "admin", "password": "secret"},
	})
	backend := func(namespace, name string) searchv1alpha1.ResourceRegistrySpec {
		return searchv1alpha1.ResourceRegistrySpec{
			ResourceSelectors: []searchv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Service", Namespace: s.namespace}},
			BackendStore: &searchv1alpha1.BackendStoreConfig{OpenSearch: &searchv1alpha1.OpenSearchConfig{
				Addresses: []string{engine.URL}, SecretRef: clusterv1alpha1.LocalSecretReference{Namespace: namespace, Name: name},
			}},
		}
	}
	s.register(t, "indexed", backend(names.SystemNamespace, "opensearch"))
	s.register(t, "thief", backend(names.ClusterNamespace, "member1"))
	s.awaitConditionOf(t, "Indexed", "indexed", metav1.ConditionTrue, "Indexed", "indexed from 2 clusters")
	s.awaitConditionOf(t, "Indexed", "thief", metav1.ConditionFalse, "Invalid", "must name a Secret in the namespace karmada-system")
	indexed := func(want ...string) {
		t.Helper()
		testenv.Eventually(t, fmt.Sprintf("%v are indexed", want), func(context.Context) (bool, error) {
			var all []string
			for _, d := range engine.Documents("kubernetes-service") {
				all = append(all, d.Metadata.Name+"/"+d.Metadata.Annotations[cachedFrom])
			}
			slices.Sort(all)
			return slices.Equal(all, want), fmt.Errorf("it has %v", all)
		})
	}
	indexed("web/member1", "web/member2")
	s.service(t, 0, s.namespace, "searched", nil)
	indexed("searched/member1", "web/member1", "web/member2")
	check(t, s.members[0].CoreV1().Services(s.namespace).Delete(t.Context(), "searched", metav1.DeleteOptions{}))
	indexed("web/member1", "web/member2")
	if engine.Rejected() != 0 {
		t.Errorf("%d requests had other credentials", engine.Rejected())
	}
	client := dynamicFor(t, s.admin).Resource(registries)
	for _, name := range []string{"indexed", "thief"} {
		check(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

// testDeleted deletes the ResourceRegistries one by one.
func (s *searching) testDeleted(t *testing.T) {
	client := dynamicFor(t, s.admin).Resource(registries)
	at := "/api/v1/namespaces/" + s.namespace + "/services"
	watcher, err := proxied(t, s.admin).Resource(services).Watch(t.Context(), metav1.ListOptions{})
	check(t, err)
	defer watcher.Stop()
	check(t, client.Delete(t.Context(), "services", metav1.DeleteOptions{}))
	testenv.Eventually(t, "only what the other registry selects is cached", func(ctx context.Context) (bool, error) {
		list, err := s.cached(ctx, s.admin, "/api/v1/services", nil)
		return err == nil && found(list) == "web/member2", err
	})
	check(t, client.Delete(t.Context(), "same", metav1.DeleteOptions{}))
	check(t, client.Delete(t.Context(), "widgets", metav1.DeleteOptions{}))
	testenv.Eventually(t, "nothing is cached", func(ctx context.Context) (bool, error) {
		_, err := s.cached(ctx, s.admin, at, nil)
		return apierrors.IsNotFound(err), err
	})
	for range watcher.ResultChan() { // the watch ends with what it watched
	}
}
