package install

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// clusterAPI are values with the provider for Cluster API.
const clusterAPI = `
clusterAPI: {enabled: true, from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: capi-system}}}]}
`

// TestDefinitionsStay expects that an installation that is removed, by Helm or without, leaves the definitions of Cluster API's kinds: their objects would go with them.
func TestDefinitionsStay(t *testing.T) {
	found := 0
	for _, object := range rendered(t, Release{Name: "cp", Namespace: "fed", Values: values(t, clusterAPI)}) {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		found++
		if object.GetAnnotations()["helm.sh/resource-policy"] != "keep" || object.GetLabels()["cluster.x-k8s.io/v1beta2"] != "v1alpha1" {
			t.Errorf("%s has labels %v and annotations %v", object.GetName(), object.GetLabels(), object.GetAnnotations())
		}
	}
	if found != 2 || slices.ContainsFunc(kinds, func(kind schema.GroupVersionKind) bool { return kind.Kind == "CustomResourceDefinition" }) {
		t.Errorf("%d definitions are found, and they are deleted", found)
	}
}
