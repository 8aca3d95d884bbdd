package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/gateway/login"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

// serveOnly creates or replaces a ServedAPI through the gateway.
func (w *world) serveOnly(t *testing.T, name string, groups []string, rules ...cellplanev1alpha1.ServedResources) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cellplanev1alpha1.ServedAPI{
		TypeMeta:   metav1.TypeMeta{APIVersion: cellplanev1alpha1.GroupVersion.String(), Kind: "ServedAPI"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cellplanev1alpha1.ServedAPISpec{UserGroups: groups, Rules: rules},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := servedAPIs(t, w).Apply(t.Context(), name, &unstructured.Unstructured{Object: content}, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		t.Fatal(err)
	}
}

func servedAPIs(t *testing.T, w *world) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(cellplanev1alpha1.GroupVersion.WithResource("servedapis"))
}

func servedRule(group string, resources []string, verbs ...string) cellplanev1alpha1.ServedResources {
	return cellplanev1alpha1.ServedResources{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// tenant is a user with all rights and a certificate of `cellplane user create`, whose API is limited.
type tenant struct {
	*world
	namespace string
	config    *rest.Config
	kubectl   kubectltest.Kubectl
}

// testServedAPI limits the API of a group.
func testServedAPI(t *testing.T, w *world) {
	u := newTenant(t, w)
	w.serveOnly(t, "tenants", []string{"tenants"},
		servedRule("", []string{"configmaps", "secrets"}, "*"),
		servedRule("", []string{"pods", "pods/log", "namespaces", "events"}, "get", "list", "watch"),
		servedRule("policy.karmada.io", []string{"overridepolicies"}, "get", "create"),
		servedRule("apps", []string{"deployments/scale"}, "get"),
	)
	testenv.Eventually(t, "deployments are not served", func(context.Context) (bool, error) {
		_, err := clientFor(t, u.config).AppsV1().Deployments(u.namespace).List(t.Context(), metav1.ListOptions{})
		return apierrors.IsNotFound(err), err
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *tenant)
	}{
		{"Discovery", testServedDiscovery},
		{"Descriptions", testServedDescriptions},
		{"Requests", testServedRequests},
		{"Kubectl", testServedKubectl},
		{"Others", testServedOthers},
		{"Change", testServedChange}, // the last: it changes the limit
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, u) })
	}
}

func newTenant(t *testing.T, w *world) *tenant {
	t.Helper()
	u := &tenant{world: w, namespace: gatewaytest.Namespace(t, w.Federation, "served")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	certificate, err := login.Issue(ctx, w.client, login.User{Name: "tina", Groups: []string{"tenants"}, For: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := login.Kubeconfig(&clientcmdapi.Cluster{Server: w.gateway.URL(), CertificateAuthorityData: w.gateway.CA()}, "tina", certificate)
	if u.config, err = clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig(); err != nil {
		t.Fatal(err)
	}
	u.config.QPS = -1
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	u.kubectl = kubectltest.Kubectl(file)
	if _, err := w.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "served-tenants"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "tenants"}, {Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "olga"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "tina may do everything", func(ctx context.Context) (bool, error) {
		_, err := clientFor(t, u.config).AppsV1().Deployments(u.namespace).List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	return u
}

// announcedTo returns all resources that discovery lists, with their verbs.
func announcedTo(t *testing.T, config *rest.Config, old bool) []string {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client.UseLegacyDiscovery = old
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found = append(found, list.GroupVersion+" "+resource.Name+" "+strings.Join(resource.Verbs, ","))
		}
	}
	slices.Sort(found)
	return found
}

func testServedDiscovery(t *testing.T, u *tenant) {
	const all = "create,delete,deletecollection,get,list,patch,update,watch"
	want := []string{
		"apps/v1 deployments/scale get", "policy.karmada.io/v1alpha1 overridepolicies get,create",
		"v1 configmaps " + all, "v1 events get,list,watch", "v1 namespaces get,list,watch", "v1 pods get,list,watch", "v1 pods/log get", "v1 secrets " + all,
	}
	federation := rest.CopyConfig(u.config)
	federation.Host += "/federation"
	for name, config := range map[string]*rest.Config{"/": u.config, "/federation": federation} {
		for _, old := range []bool{false, true} {
			if got := announcedTo(t, config, old); !slices.Equal(got, want) {
				t.Errorf("at %s, old format %v, discovery lists\n%s", name, old, strings.Join(got, "\n"))
			}
		}
	}
	for _, path := range []string{"/apis/batch", "/apis/batch/v1", "/apis/cellplane.io/v1alpha1", "/openapi/v3/apis/batch/v1"} {
		if response := send(t, u.config, http.MethodGet, path, nil, ""); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	if got := announcedTo(t, u.gateway.Config(t), false); len(got) < 100 {
		t.Errorf("an administrator is shown only %v", got)
	}
}

func testServedDescriptions(t *testing.T, u *tenant) {
	const maps1, pods1, secretsWatch, podLog = "/api/v1/namespaces/{namespace}/configmaps", "/api/v1/namespaces/{namespace}/pods", "/api/v1/watch/secrets", "/api/v1/namespaces/{namespace}/pods/{name}/log"
	check := func(what string, paths map[string]bool) {
		t.Helper()
		for path, want := range map[string]bool{
			maps1: true, pods1: true, secretsWatch: true, podLog: true, "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale": true, "/api/v1/": true,
			"/api/v1/namespaces/{namespace}/pods/{name}/exec": false, "/apis/apps/v1/namespaces/{namespace}/deployments": false, "/apis/batch/v1/": false,
			"/api/v1/namespaces/{name}": true, "/api/v1/namespaces/{name}/finalize": false, "/apis/cellplane.io/v1alpha1/servedapis": false,
		} {
			if paths[path] != want && (strings.HasPrefix(path, "/api/") || what == "OpenAPI 2") {
				t.Errorf("%s describes %s: %v", what, path, paths[path])
			}
		}
	}
	check("OpenAPI 2", olderPaths(t, u.config))
	var document struct {
		Paths       map[string]map[string]any
		Definitions map[string]any
	}
	read := func(path string) {
		t.Helper()
		document.Paths, document.Definitions = nil, nil
		if err := json.Unmarshal(readOK(t, send(t, u.config, http.MethodGet, path, http.Header{"Accept": {"application/json"}}, "")), &document); err != nil {
			t.Fatal(err)
		}
	}
	read("/openapi/v2")
	if document.Definitions["io.k8s.api.core.v1.ConfigMap"] == nil || document.Definitions["io.k8s.api.apps.v1.Deployment"] != nil || document.Paths[maps1]["post"] == nil || document.Paths[pods1]["post"] != nil {
		t.Error("OpenAPI 2 has other kinds or operations than discovery")
	}
	read("/openapi/v3/api/v1")
	check("OpenAPI 3", func() map[string]bool {
		found := map[string]bool{}
		for path := range document.Paths {
			found[path] = true
		}
		return found
	}())
	if document.Paths[pods1]["get"] == nil || document.Paths[pods1]["post"] != nil || document.Paths[maps1]["delete"] == nil {
		t.Errorf("OpenAPI 3 has the operations %v of pods", slices.Collect(maps.Keys(document.Paths[pods1])))
	}
	protobuf := readOK(t, send(t, u.config, http.MethodGet, "/openapi/v3/api/v1", http.Header{"Accept": {protobufV3}}, ""))
	if text := string(protobuf); !strings.Contains(text, maps1) || strings.Contains(text, "/serviceaccounts") {
		t.Error("OpenAPI 3 in protobuf has other paths than in JSON")
	}
	index, err := clientFor(t, u.config).Discovery().OpenAPIV3().Paths()
	if err != nil || index["api/v1"] == nil || index["apis/batch/v1"] != nil || index["apis/apps/v1"] == nil {
		t.Errorf("the index is %v, %v", slices.Sorted(maps.Keys(index)), err)
	}
	// Documents are cached for several kinds of users at once.
	if theirs, err := clientFor(t, u.gateway.Config(t)).Discovery().OpenAPIV3().Paths(); err != nil || theirs["api/v1"].ServerRelativeURL() == index["api/v1"].ServerRelativeURL() {
		t.Errorf("an administrator reads the same document: %v", err)
	}
	if !olderPaths(t, u.gateway.Config(t))["/apis/batch/v1/"] {
		t.Error("an administrator is shown the limited OpenAPI 2")
	}
}

// testServedRequests sends requests for what is served and for what is not, also by ways around.
func testServedRequests(t *testing.T, u *tenant) {
	in := "/api/v1/namespaces/" + u.namespace
	asUnknown := func(path string) string {
		t.Helper()
		response := send(t, u.gateway.Config(t), http.MethodGet, path, nil, "")
		body, _ := io.ReadAll(response.Body)
		return fmt.Sprintf("%s %s %s %s", response.Status, response.Header.Get("Content-Type"), response.Header.Get("X-Content-Type-Options"), body)
	}
	unknown := asUnknown("/apis/apps/v1/namespaces/" + u.namespace + "/nonsense")
	if core := asUnknown("/api/v1/nonsense"); core != unknown || !strings.HasPrefix(unknown, "404 ") {
		t.Fatalf("API servers answer %q and %q for unknown resources", unknown, core)
	}
	for _, test := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", in + "/configmaps", `{"metadata":{"name":"a"}}`, 201},
		{"GET", in + "/configmaps/a", "", 200},
		{"GET", "/federation" + in + "/configmaps", "", 200},
		{"DELETE", in + "/configmaps", "", 200},
		{"GET", "/api/v1/namespaces/" + u.namespace, "", 200},
		{"POST", in + "/pods?dryRun=All", `{"metadata":{"name":"a"}}`, 405},
		{"DELETE", in + "/pods", "", 405},
		{"DELETE", "/api/v1/namespaces/" + u.namespace, "", 405},
		{"GET", "/apis/policy.karmada.io/v1alpha1/overridepolicies", "", 405},
		{"GET", "/apis/policy.karmada.io/v1alpha1/namespaces/" + u.namespace + "/overridepolicies/a", "", 404},
		{"PUT", "/api/v1/namespaces/" + u.namespace + "/finalize", `{}`, 404},
		{"GET", "/apis/apps/v1/namespaces/" + u.namespace + "/deployments", "", 404},
		{"GET", "/federation/apis/apps/v1/deployments", "", 404},
		{"GET", "/apis/apps/v1/watch/deployments", "", 404},
		{"GET", "/apis/apps/v1/deployments?watch=1", "", 404},
		{"GET", "/apis/extensions/v1beta1/namespaces/" + u.namespace + "/deployments", "", 404},
		{"GET", "/apis/events.k8s.io/v1/events", "", 404},
		{"GET", in + "/Secrets", "", 404},
		{"GET", "/API/v1/configmaps", "", 404},
		{"GET", "/api/v1/nodes", "", 404},
		{"GET", "/api/v1/proxy/nodes/x", "", 404},
		{"POST", in + "/pods/a/eviction", `{}`, 404},
		{"GET", "/apis/cluster.karmada.io/v1alpha1/clusters/member-1/proxy/api/v1/nodes", "", 404},
		{"GET", "/apis/cellplane.io/v1alpha1/servedapis", "", 404},
		{"PATCH", "/apis/cellplane.io/v1alpha1/servedapis/tenants", `{}`, 404},
		{"GET", in + "/configmaps/../../../../../apis/apps/v1/deployments", "", 400},
		{"GET", "/version", "", 200}, {"GET", "/readyz", "", 200}, {"GET", "/livez", "", 200},
	} {
		response := send(t, u.config, test.method, test.path, nil, test.body)
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != test.want {
			t.Errorf("%s %s: %s %.200s, want %d", test.method, test.path, response.Status, body, test.want)
		}
		isObject := strings.Contains(test.path, "/overridepolicies/a")
		if got := fmt.Sprintf("%s %s %s %s", response.Status, response.Header.Get("Content-Type"), response.Header.Get("X-Content-Type-Options"), body); test.want == 404 && !isObject &&
			strings.Contains(strings.ToLower(test.path), "/api") && !strings.HasPrefix(test.path, "/API") && got != unknown {
			t.Errorf("%s %s: %q, but an unknown resource is %q", test.method, test.path, got, unknown)
		}
	}
	_, err := clientFor(t, u.config).AppsV1().Deployments(u.namespace).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "the server could not find the requested resource") {
		t.Errorf("listing deployments: %v", err)
	}
}

func testServedKubectl(t *testing.T, u *tenant) {
	names := strings.Fields(u.kubectl.Must(t, "api-resources", "-o", "name", "--cached=false"))
	slices.Sort(names)
	want := []string{"configmaps", "events", "namespaces", "overridepolicies.policy.karmada.io", "pods", "secrets"}
	if !slices.Equal(names, want) {
		t.Errorf("kubectl api-resources: %v", names)
	}
	completed := u.kubectl.Must(t, "__complete", "get", "")
	for line := range strings.Lines(completed) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "Completion") && !slices.Contains(append(want, "overridepolicies"), line) {
			t.Errorf("kubectl completes get with %q", line)
		}
	}
	if !strings.Contains(completed, "configmaps") {
		t.Errorf("kubectl completes get with %q", completed)
	}
	if out, err := u.kubectl.Try(t.Context(), t, "", "get", "deployments", "-A"); err == nil || !strings.Contains(out, `the server doesn't have a resource type "deployments"`) {
		t.Errorf("kubectl get deployments: %v, %s", err, out)
	}
	const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: b}\n"
	if out, err := u.kubectl.Try(t.Context(), t, manifest, "apply", "--server-side", "-n", u.namespace, "-f", "-"); err != nil {
		t.Errorf("kubectl apply: %v, %s", err, out)
	}
	u.kubectl.Must(t, "get", "all,configmaps", "-n", u.namespace)
	if out := u.kubectl.Must(t, "explain", "configmap"); !strings.Contains(out, "KIND:       ConfigMap") {
		t.Errorf("kubectl explain configmap: %s", out)
	}
	if out, err := u.kubectl.Try(t.Context(), t, "", "explain", "deployment"); err == nil {
		t.Errorf("kubectl explains deployments: %s", out)
	}
}

// testServedOthers checks who is not limited, and what several ServedAPIs are together.
func testServedOthers(t *testing.T, u *tenant) {
	lists := func(config *rest.Config) (deployments, maps, jobs bool) {
		t.Helper()
		client := clientFor(t, config)
		_, err := client.AppsV1().Deployments(u.namespace).List(t.Context(), metav1.ListOptions{})
		_, err2 := client.CoreV1().ConfigMaps(u.namespace).List(t.Context(), metav1.ListOptions{})
		_, err3 := client.BatchV1().Jobs(u.namespace).List(t.Context(), metav1.ListOptions{})
		for _, err := range []error{err, err2, err3} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
		return err == nil, err2 == nil, err3 == nil
	}
	as := func(groups ...string) *rest.Config {
		config := u.gateway.Config(t)
		config.Impersonate = rest.ImpersonationConfig{UserName: "olga", Groups: groups}
		return config
	}
	u.serveOnly(t, "deployers", []string{"deployers", "system:authenticated-by-nobody"}, servedRule("apps", []string{"deployments"}, "list"))
	t.Cleanup(func() {
		_ = servedAPIs(t, u.world).Delete(context.WithoutCancel(t.Context()), "deployers", metav1.DeleteOptions{})
	})
	testenv.Eventually(t, "jobs are not served to deployers", func(context.Context) (bool, error) {
		_, _, jobs := lists(as("deployers"))
		return !jobs, nil
	})
	for _, test := range []struct {
		name                    string
		config                  *rest.Config
		deployments, maps, jobs bool
	}{
		{"an administrator", u.gateway.Config(t), true, true, true},
		{"a user of no limited group", u.gateway.ConfigFor(t, "olga", "others"), true, true, true},
		{"tina", u.config, false, true, false},
		{"a user impersonated with a limited group", as("tenants"), false, true, false},
		{"a user impersonated with two limited groups", as("tenants", "deployers", "others"), true, true, false},
		{"a user impersonated with another group", as("others"), true, true, true},
		{"a member of both groups", u.gateway.ConfigFor(t, "otto", "deployers", "tenants"), true, true, false},
	} {
		if deployments, maps, jobs := lists(test.config); deployments != test.deployments || maps != test.maps || jobs != test.jobs {
			t.Errorf("%s: deployments %v, config maps %v, jobs %v", test.name, deployments, maps, jobs)
		}
	}
}

// testServedChange changes what is served while watches are open. Those that are no longer served end.
func testServedChange(t *testing.T, u *tenant) {
	client := clientFor(t, u.config)
	open := func(get func(metav1.ListOptions) (watch.Interface, error)) watch.Interface {
		t.Helper()
		w, err := get(metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	ofSecrets := open(func(o metav1.ListOptions) (watch.Interface, error) {
		return client.CoreV1().Secrets(u.namespace).Watch(t.Context(), o)
	})
	ofNamespaces := open(func(o metav1.ListOptions) (watch.Interface, error) {
		return client.CoreV1().Namespaces().Watch(t.Context(), o)
	})
	ofMaps := open(func(o metav1.ListOptions) (watch.Interface, error) {
		return client.CoreV1().ConfigMaps(u.namespace).Watch(t.Context(), o)
	})
	u.serveOnly(t, "tenants", []string{"tenants"}, servedRule("", []string{"configmaps"}, "create", "watch"), servedRule("batch", []string{"jobs"}, "list"))
	for name, w := range map[string]watch.Interface{"secrets": ofSecrets, "namespaces": ofNamespaces} {
		testenv.Eventually(t, "the watch of "+name+" ends", func(ctx context.Context) (bool, error) {
			for {
				select {
				case event, more := <-w.ResultChan():
					if !more {
						return true, nil
					}
					if event.Type == watch.Error {
						t.Errorf("the watch of %s got %v", name, event.Object)
					}
				case <-ctx.Done():
					return false, ctx.Err()
				}
			}
		})
	}
	if _, err := client.CoreV1().Secrets(u.namespace).Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("watching secrets again: %v", err)
	}
	if got, want := announcedTo(t, u.config, false), []string{"batch/v1 jobs list", "v1 configmaps create,watch"}; !slices.Equal(got, want) {
		t.Errorf("discovery lists %v", got)
	}
	// The other watch goes on. Watching needs no list.
	if _, err := client.CoreV1().ConfigMaps(u.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range ofMaps.ResultChan() {
		if found, ok := event.Object.(*corev1.ConfigMap); ok && found.Name == "late" {
			break
		}
	}
	if _, err := client.CoreV1().ConfigMaps(u.namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("listing config maps: %v", err)
	}
	testApplyWithoutCreate(t, u, client.CoreV1().RESTClient())
	if err := servedAPIs(t, u.world).Delete(t.Context(), "tenants", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "everything is served again", func(ctx context.Context) (bool, error) {
		_, err := client.AppsV1().Deployments(u.namespace).List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
}

// testApplyWithoutCreate checks that a user who is served patch and not create cannot create by an apply or a PUT.
func testApplyWithoutCreate(t *testing.T, u *tenant, client rest.Interface) {
	t.Helper()
	u.serveOnly(t, "tenants", []string{"tenants"}, servedRule("", []string{"configmaps"}, "get", "patch", "update"))
	testenv.Eventually(t, "watch is not served", func(ctx context.Context) (bool, error) {
		_, err := client.Get().Namespace(u.namespace).Resource("configmaps").Param("watch", "1").Stream(ctx)
		return apierrors.IsMethodNotSupported(err), err
	})
	apply := func(name string) error {
		return client.Patch(types.ApplyPatchType).Namespace(u.namespace).Resource("configmaps").Name(name).Param("fieldManager", "test").
			Body([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"b"}}`)).Do(t.Context()).Error()
	}
	if err := apply("late"); err != nil {
		t.Errorf("applying to an object that exists: %v", err)
	}
	if err := apply("new"); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("applying a new object: %v", err)
	}
}

// keepLimit lets fred use config maps only, so that there is a limit to keep across a restart.
func keepLimit(t *testing.T, w *world, state string) {
	t.Helper()
	w.serveOnly(t, "kept-limit", []string{"kept-limit"}, servedRule("", []string{"configmaps"}, "*"))
	testenv.Eventually(t, "the ServedAPIs are kept", func(context.Context) (bool, error) {
		kept, err := os.ReadFile(filepath.Join(state, "served.json"))
		return strings.Contains(string(kept), "kept-limit"), err
	})
}

// checkKeptLimit checks that fred is limited.
func checkKeptLimit(t *testing.T, w *world, namespace string) {
	t.Helper()
	fred := clientFor(t, w.gateway.ConfigFor(t, "fred", "kept-limit"))
	if _, err := fred.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("fred listing config maps while the hub is down: %v, want it forbidden", err)
	}
	if _, err := fred.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("fred listing secrets while the hub is down: %v, want 404", err)
	}
}
