package kinds

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/served"
)

func kindOf(kind string) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Version: "v1", Kind: kind}
}

func described(resource, kind string, subresources ...apidiscoveryv2.APISubresourceDiscovery) apidiscoveryv2.APIResourceDiscovery {
	return apidiscoveryv2.APIResourceDiscovery{
		Resource: resource, ResponseKind: kindOf(kind), Scope: apidiscoveryv2.ScopeNamespace, SingularResource: strings.ToLower(kind), ShortNames: []string{resource[:2]},
		Verbs: []string{"create", "delete", "get", "list", "watch"}, Subresources: subresources,
	}
}

func group(name string, versions ...apidiscoveryv2.APIVersionDiscovery) apidiscoveryv2.APIGroupDiscovery {
	return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: versions}
}

func version(name string, resources ...apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIVersionDiscovery {
	return apidiscoveryv2.APIVersionDiscovery{Version: name, Resources: resources}
}

var whole = documents{
	Core: apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{group("", version("v1",
		described("configmaps", "ConfigMap"), described("secrets", "Secret"),
		described("pods", "Pod", apidiscoveryv2.APISubresourceDiscovery{Subresource: "log", ResponseKind: kindOf("Pod"), Verbs: []string{"get"}},
			apidiscoveryv2.APISubresourceDiscovery{Subresource: "exec", ResponseKind: kindOf("PodExecOptions"), Verbs: []string{"create", "get"}}),
	))}},
	Groups: apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{
		group("apps", version("v2", described("statefulsets", "StatefulSet")), version("v1", described("deployments", "Deployment"), described("statefulsets", "StatefulSet"))),
		group("batch", version("v1", described("jobs", "Job"))),
		group("empty.example.io", version("v1")),
	}},
}

func limitOf(rules ...cellplanev1alpha1.ServedResources) *served.Limit {
	return served.NewLimits([]cellplanev1alpha1.ServedAPI{{Spec: cellplanev1alpha1.ServedAPISpec{UserGroups: []string{"x"}, Rules: rules}}}).For([]string{"x"})
}

// TestLimitedDiscovery checks both formats of discovery against each other, and that nothing else is in them.
func TestLimitedDiscovery(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules []cellplanev1alpha1.ServedResources
		want  string // group/version resource verbs
	}{
		{"everything", []cellplanev1alpha1.ServedResources{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}, `
			v1 configmaps create,delete,get,list,watch
			v1 secrets create,delete,get,list,watch
			v1 pods create,delete,get,list,watch
			v1 pods/log get
			v1 pods/exec create,get
			apps/v2 statefulsets create,delete,get,list,watch
			apps/v1 deployments create,delete,get,list,watch
			apps/v1 statefulsets create,delete,get,list,watch
			batch/v1 jobs create,delete,get,list,watch`},
		{"some", []cellplanev1alpha1.ServedResources{
			{APIGroups: []string{"", "apps"}, Resources: []string{"configmaps", "deployments"}, Verbs: []string{"get", "watch", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create"}},
		}, `
			v1 configmaps get,watch
			v1 pods/exec create
			apps/v1 deployments get,watch`},
		{"a verb that nothing has", []cellplanev1alpha1.ServedResources{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"deletecollection"}}}, ""},
		{"a resource that does not exist", []cellplanev1alpha1.ServedResources{{APIGroups: []string{"*"}, Resources: []string{"carts"}, Verbs: []string{"*"}}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			limited, announced := whole.limitedTo(limitOf(test.rules...))
			shown := newShown(limited, announced)
			var want []string
			for line := range strings.Lines(strings.TrimSpace(test.want)) {
				want = append(want, strings.TrimSpace(line))
			}
			if got := oldFormat(t, shown); !slices.Equal(got, want) {
				t.Errorf("the old format has\n%s", strings.Join(got, "\n"))
			}
			if got := newFormat(t, shown); !slices.Equal(got, want) {
				t.Errorf("the aggregated format has\n%s", strings.Join(got, "\n"))
			}
			for _, line := range want {
				fields := strings.Fields(line)
				gv, _ := schema.ParseGroupVersion(fields[0])
				resource, subresource, _ := strings.Cut(fields[1], "/")
				for verb := range strings.SplitSeq(fields[2], ",") {
					if !announced.Has(gv.WithResource(resource), subresource, verb) || !announced.HasVersion(gv) || !announced.HasGroup(gv.Group) {
						t.Errorf("%s of %s is not announced", verb, line)
					}
				}
				if announced.Has(gv.WithResource(resource), subresource, "deletecollection") {
					t.Errorf("deletecollection of %s is announced", line)
				}
			}
		})
	}
}

func read(t *testing.T, shown *Shown, path, accept string, into any) {
	t.Helper()
	handler := shown.Handler(path)
	if handler == nil {
		t.Fatalf("there is no %s", path)
	}
	request, recorder := httptest.NewRequest(http.MethodGet, path, http.NoBody), httptest.NewRecorder()
	request.Header.Set("Accept", accept)
	handler.ServeHTTP(recorder, request)
	if err := json.Unmarshal(recorder.Body.Bytes(), into); err != nil {
		t.Fatalf("%s is %q: %v", path, recorder.Body, err)
	}
}

// oldFormat reads the old format as clients do, and fails if there is a path that they cannot find.
func oldFormat(t *testing.T, shown *Shown) (found []string) {
	t.Helper()
	var core metav1.APIVersions
	var groups metav1.APIGroupList
	read(t, shown, "/api", "application/json", &core)
	read(t, shown, "/apis", "application/json", &groups)
	paths := []string{"/api", "/apis"}
	list := func(path string) {
		var resources metav1.APIResourceList
		read(t, shown, path, "application/json", &resources)
		paths = append(paths, path)
		for _, r := range resources.APIResources {
			found = append(found, resources.GroupVersion+" "+r.Name+" "+strings.Join(r.Verbs, ","))
		}
	}
	for _, version := range core.Versions {
		list("/api/" + version)
	}
	for _, group := range groups.Groups {
		paths = append(paths, "/apis/"+group.Name)
		for _, version := range group.Versions {
			list("/apis/" + version.GroupVersion)
		}
	}
	if len(paths) != len(shown.handlers) {
		t.Errorf("there are %d paths, of which clients find %d", len(shown.handlers), len(paths))
	}
	return found
}

func newFormat(t *testing.T, shown *Shown) (found []string) {
	t.Helper()
	for _, path := range []string{"/api", "/apis"} {
		var list apidiscoveryv2.APIGroupDiscoveryList
		read(t, shown, path, aggregatedAccept, &list)
		for _, group := range list.Items {
			for _, version := range group.Versions {
				gv := schema.GroupVersion{Group: group.Name, Version: version.Version}.String()
				for _, r := range version.Resources {
					if len(r.Verbs) > 0 {
						found = append(found, gv+" "+r.Resource+" "+strings.Join(r.Verbs, ","))
					} else if *r.ResponseKind != (metav1.GroupVersionKind{}) {
						t.Errorf("%s has no verbs and a kind", r.Resource)
					}
					for _, s := range r.Subresources {
						found = append(found, gv+" "+r.Resource+"/"+s.Subresource+" "+strings.Join(s.Verbs, ","))
					}
				}
			}
		}
	}
	return found
}

// TestMarks checks that marks, by which documents are cached, differ when verbs do.
func TestMarks(t *testing.T) {
	v1, apps := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "apps", Version: "v1"}
	marks := map[string]bool{}
	for _, verbs := range [][]string{{"get"}, {"list"}, {"get", "list"}, {"*"}} {
		_, announced := whole.limitedTo(limitOf(
			cellplanev1alpha1.ServedResources{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs},
			cellplanev1alpha1.ServedResources{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}}))
		marks[announced.MarkOf(v1)], marks[announced.Mark()], marks[announced.MarkOf(apps)] = true, true, true
	}
	if len(marks) != 4+4+1 {
		t.Errorf("there are %d marks: %v", len(marks), marks)
	}
}

// TestTemplateOnHub tells by the name of a binding where its template lives. A kind that exists in cells too does not count.
func TestTemplateOnHub(t *testing.T) {
	hub := documents{
		Core: apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{group("", version("v1", described("serviceaccounts", "ServiceAccount"), described("secrets", "Secret")))}},
		Groups: apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{
			group("rbac.authorization.k8s.io", version("v1", described("roles", "Role"), described("rolebindings", "RoleBinding"))),
			group("example.io", version("v1", described("rolebindings", "RoleBinding"))),
		}},
	}
	catalog := newCatalog(hub, nil, func(schema.GroupResource) bool { return true })
	for name, want := range map[string]bool{
		"reader-role": true, "a-b-serviceaccount": true, "role-secret": false, "reader-rolebinding": false, "reader-unknown": false, "role": false, "": false,
	} {
		if got := catalog.TemplateOnHub(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
