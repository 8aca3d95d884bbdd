package crds_test

import (
	"testing"

	"k8s.io/client-go/discovery"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/testenv"
)

func TestInstall(t *testing.T) {
	config := testenv.SharedAPIServer(t).RESTConfig()
	// The definitions are installed already; installing them again must change nothing.
	if err := crds.Install(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range crds.All() {
		for _, version := range definition.Spec.Versions {
			groupVersion := definition.Spec.Group + "/" + version.Name
			resources, err := client.ServerResourcesForGroupVersion(groupVersion)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, resource := range resources.APIResources {
				found = found || resource.Name == definition.Spec.Names.Plural && resource.Kind == definition.Spec.Names.Kind
			}
			if !found {
				t.Errorf("%s does not list %s", groupVersion, definition.Spec.Names.Plural)
			}
		}
	}
}
