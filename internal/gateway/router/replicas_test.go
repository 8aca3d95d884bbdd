package router

import (
	"reflect"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestReplicasPaths checks where the replicas of a custom resource are looked for, by what its definition says about each version.
func TestReplicasPaths(t *testing.T) {
	version := func(name, path string) apiextensionsv1.CustomResourceDefinitionVersion {
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Subresources: &apiextensionsv1.CustomResourceSubresources{}}
		if path != "" {
			v.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: path}
		}
		return v
	}
	size, fallback := []string{"spec", "size"}, []string{"spec", "replicas"}
	for name, test := range map[string]struct {
		versions []apiextensionsv1.CustomResourceDefinitionVersion
		want     [][]string
	}{
		"no scale":             {[]apiextensionsv1.CustomResourceDefinitionVersion{version("v1", "")}, nil},
		"its own":              {[]apiextensionsv1.CustomResourceDefinitionVersion{version("v2", ".spec.other"), version("v1", ".spec.size")}, [][]string{size}},
		"that of another":      {[]apiextensionsv1.CustomResourceDefinitionVersion{version("v1", ""), version("v2", ".spec.size")}, [][]string{size, fallback}},
		"without subresources": {[]apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, version("v2", ".spec.size")}, [][]string{size, fallback}},
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: test.versions}}
		if got := replicasPaths(definition, "v1"); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
