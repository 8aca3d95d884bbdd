package served

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

func rule(groups, resources, verbs []string) cellplanev1alpha1.ServedResources {
	return cellplanev1alpha1.ServedResources{APIGroups: groups, Resources: resources, Verbs: verbs}
}

func api(name string, groups []string, rules ...cellplanev1alpha1.ServedResources) cellplanev1alpha1.ServedAPI {
	return cellplanev1alpha1.ServedAPI{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cellplanev1alpha1.ServedAPISpec{UserGroups: groups, Rules: rules}}
}

type strs = []string

func TestAllows(t *testing.T) {
	limit := NewLimits([]cellplanev1alpha1.ServedAPI{api("x", strs{"tenants"},
		rule(strs{""}, strs{"configmaps"}, strs{"*"}),
		rule(strs{""}, strs{"pods", "pods/log"}, strs{"get", "list"}),
		rule(strs{""}, strs{"events"}, strs{"watch"}),
		rule(strs{"apps"}, strs{"*/scale", "deployments"}, strs{"update"}),
		rule(strs{"*"}, strs{"leases"}, strs{"get"}),
		rule(strs{"shop.example.io"}, strs{"*"}, strs{"get", "create"}),
	)}).For(strs{"tenants"})
	for _, test := range []struct {
		group, resource, subresource, verb string
		want, serves                       bool
	}{
		{"", "configmaps", "", "deletecollection", true, true},
		{"", "configmaps", "", "", true, true},
		{"", "configmaps", "status", "get", false, false},
		{"", "ConfigMaps", "", "get", false, false},
		{"", "secrets", "", "get", false, false},
		{"", "pods", "", "list", true, true},
		{"", "pods", "", "watch", false, true},
		{"", "pods", "", "", false, true},
		{"", "pods", "", "proxy", false, true},
		{"", "pods", "log", "get", true, true},
		{"", "pods", "log", "create", false, true},
		{"", "pods", "exec", "get", false, false},
		{"", "events", "", "watch", true, true},
		{"", "events", "", "list", false, true},
		{"events.k8s.io", "events", "", "watch", false, false},
		{"apps", "statefulsets", "scale", "update", true, true},
		{"apps", "statefulsets", "", "update", false, false},
		{"apps", "deployments", "", "update", true, true},
		{"apps", "deployments", "status", "update", false, false},
		{"batch", "jobs", "scale", "update", false, false},
		{"coordination.k8s.io", "leases", "", "get", true, true},
		{"", "leases", "", "get", true, true},
		{"shop.example.io", "carts", "checkout", "create", true, true},
		{"shop.example.io", "carts", "", "delete", false, true},
		{"", "*", "", "get", false, false},
		{"", "", "", "get", false, false},
	} {
		resource := schema.GroupResource{Group: test.group, Resource: test.resource}
		if got, serves := limit.Allows(resource, test.subresource, test.verb), limit.Serves(resource, test.subresource); got != test.want || serves != test.serves {
			t.Errorf("%s %s/%s: allowed %v, served %v", test.verb, resource, test.subresource, got, serves)
		}
	}
}

func TestFor(t *testing.T) {
	limits := NewLimits([]cellplanev1alpha1.ServedAPI{
		api("b", strs{"tenants", "others"}, rule(strs{""}, strs{"secrets"}, strs{"get"})),
		api("a", strs{"tenants"}, rule(strs{""}, strs{"pods"}, strs{"list"})),
		api("c", strs{"auditors"}, rule(strs{""}, strs{"pods"}, strs{"get"})),
	})
	pods, secrets := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "secrets"}
	for _, test := range []struct {
		groups                       []string
		limited                      bool
		listPods, getPods, getSecret bool
	}{
		{nil, false, false, false, false},
		{strs{"admins", "system:authenticated"}, false, false, false, false},
		{strs{"tenants"}, true, true, false, true},
		{strs{"others", "unnamed"}, true, false, false, true},
		{strs{"auditors", "tenants"}, true, true, true, true},
		{strs{"Tenants"}, false, false, false, false},
	} {
		limit := limits.For(test.groups)
		if (limit != nil) != test.limited {
			t.Errorf("%v is limited: %v", test.groups, limit != nil)
		}
		if limit == nil {
			continue
		}
		if limit.Allows(pods, "", "list") != test.listPods || limit.Allows(pods, "", "get") != test.getPods || limit.Allows(secrets, "", "get") != test.getSecret {
			t.Errorf("%v is served %+v", test.groups, limit.rules)
		}
	}
	if limits.For(strs{"tenants", "auditors"}) != limits.For(strs{"auditors", "x", "tenants", "tenants"}) {
		t.Error("the limit of the same groups is made twice")
	}
	if NewLimits(nil).For(strs{"tenants"}) != nil {
		t.Error("somebody is limited without a ServedAPI")
	}
}

// TestUnion checks that a user is served what one of the groups is served, and nothing else.
func TestUnion(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c", "*"})
	some := func(of *rapid.Generator[string]) *rapid.Generator[[]string] { return rapid.SliceOfN(of, 1, 3) }
	rapid.Check(t, func(t *rapid.T) {
		var apis []cellplanev1alpha1.ServedAPI
		for range rapid.IntRange(0, 5).Draw(t, "apis") {
			apis = append(apis, api(rapid.StringN(1, 4, -1).Draw(t, "name"), some(names).Draw(t, "groups"),
				rule(some(names).Draw(t, "apiGroups"), some(rapid.SampledFrom([]string{"a", "b", "a/s", "*/s", "*"})).Draw(t, "resources"), some(names).Draw(t, "verbs"))))
		}
		groups := some(names).Draw(t, "of")
		resource := schema.GroupResource{Group: names.Draw(t, "apiGroup"), Resource: names.Draw(t, "resource")}
		subresource, verb := rapid.SampledFrom([]string{"", "s"}).Draw(t, "subresource"), names.Draw(t, "verb")
		limited, allowed := false, false
		for _, group := range groups {
			if one := NewLimits(apis).For([]string{group}); one != nil {
				limited, allowed = true, allowed || one.Allows(resource, subresource, verb)
			}
		}
		got := NewLimits(apis).For(groups)
		if (got != nil) != limited || limited && got.Allows(resource, subresource, verb) != allowed {
			t.Fatalf("limited %v, want %v; allowed want %v", got != nil, limited, allowed)
		}
		if limited && allowed && !got.Serves(resource, subresource) {
			t.Fatal("a verb is allowed for what is not served")
		}
	})
}
