package atrest_test

import (
	"testing"

	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/atrest/atresttest"
)

func TestResourceOf(t *testing.T) {
	for relative, want := range map[string]string{
		"configmaps/shop/a":                                "configmaps",
		"deployments/shop/web":                             "deployments.apps",
		"services/specs/shop/web":                          "services",
		"services/endpoints/shop/web":                      "endpoints",
		"ingress/shop/web":                                 "ingresses.networking.k8s.io",
		"networkpolicies/shop/web":                         "networkpolicies.networking.k8s.io",
		"horizontalpodautoscalers/shop/web":                "horizontalpodautoscalers.autoscaling",
		"controllers/shop/web":                             "replicationcontrollers",
		"leases/kube-system/a":                             "leases.coordination.k8s.io",
		"events/shop/a":                                    "events",
		"endpointslices/shop/a":                            "endpointslices.discovery.k8s.io",
		"cronjobs/shop/a":                                  "cronjobs.batch",
		"controllerrevisions/shop/a":                       "controllerrevisions.apps",
		"priorityclasses/a":                                "priorityclasses.scheduling.k8s.io",
		"work.karmada.io/resourcebindings/shop/a":          "resourcebindings.work.karmada.io",
		"apiextensions.k8s.io/customresourcedefinitions/a": "customresourcedefinitions.apiextensions.k8s.io",
		"example.io/secrets/shop/a":                        "secrets.example.io",
		"ranges/serviceips":                                "",
		"masterleases/127.0.0.1":                           "",
		"example.io/":                                      "",
		"":                                                 "",
	} {
		got, found := atrest.ResourceOf(relative)
		if found != (want != "") || found && got.String() != want {
			t.Errorf("%s: got %s, %v; want %s", relative, got, found, want)
		}
	}
}

func TestWeaker(t *testing.T) {
	aes, none := atresttest.Provider("aescbc", "key1"), atresttest.Identity
	for _, test := range []struct {
		name, from, to, want string
	}{
		{"neither", "", "", ""},
		{"the source only", atresttest.List("secrets", aes), "", "secrets"},
		{"the target only", "", atresttest.List("secrets", aes), ""},
		{"both", atresttest.List("secrets", aes), atresttest.List("secrets", atresttest.Provider("secretbox", "key2")), ""},
		{"by a wildcard", atresttest.List("secrets, deployments.apps", aes), atresttest.List("'*.*'", aes), ""},
		{"by a wildcard of the group", atresttest.List("secrets", aes), atresttest.List("'*.'", aes), ""},
		{"less than everything", atresttest.List("'*.*'", aes), atresttest.List("secrets, configmaps", aes), "*.*"},
		{"an exception", atresttest.List("'*.*'", aes), atresttest.List("configmaps", none) + atresttest.List("'*.*'", aes), "configmaps"},
		{"the same exception", atresttest.List("configmaps", none) + atresttest.List("'*.*'", aes), atresttest.List("configmaps", none) + atresttest.List("'*.*'", aes), ""},
		{"an exception that cells do not share", atresttest.List("'*.*'", aes), atresttest.List("events, serviceaccounts", none) + atresttest.List("'*.*'", aes), ""},
		{"another resource", atresttest.List("secrets", aes), atresttest.List("configmaps", aes), "secrets"},
		{"only readable", atresttest.List("secrets", aes), atresttest.List("secrets", none, aes), "secrets"},
		{"no API server was asked", atresttest.List("secrets", none, aes), "", "secrets"},
		{"kinds that cells do not share", atresttest.List("nodes, clusterroles.rbac.authorization.k8s.io, events, events.events.k8s.io", aes), "", ""},
		{"events of another kind", atresttest.List("events.example.io", aes), "", "events.example.io"},
	} {
		var keys [2]*atrest.Keys
		for i, lists := range []string{test.from, test.to} {
			if lists != "" {
				keys[i] = keysFrom(t, atresttest.Config(lists))
			}
		}
		resource, weaker := atrest.Weaker(keys[0], keys[1])
		if weaker != (test.want != "") || resource != test.want {
			t.Errorf("%s: got %s, %v; want %s", test.name, resource, weaker, test.want)
		}
	}
}

// TestWeakerAsProven has an API server write with another provider than the first one in the Secret. That counts.
func TestWeakerAsProven(t *testing.T) {
	aes := atresttest.Provider("aescbc", "key1")
	for _, test := range []struct {
		server, given []string
		weaker        bool
	}{
		{[]string{aes}, []string{atresttest.Identity, aes}, true},
		{[]string{atresttest.Identity}, []string{aes, atresttest.Identity}, false},
	} {
		keys := keysFrom(t, atresttest.Config(atresttest.List("secrets", test.given...)))
		keys.SetProbe(probeOf(apiServer(t, atresttest.Config(atresttest.List("secrets", test.server...)))))
		if _, err := keys.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, weaker := atrest.Weaker(keys, nil); weaker != test.weaker {
			t.Errorf("with %s: %v", test.server, weaker)
		}
	}
}
