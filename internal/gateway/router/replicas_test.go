package router

import (
	"reflect"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cellplane/cellplane/internal/gateway/protection"
)

// TestReplicas checks where the replicas of a custom resource are looked for, by what its definition says about each version.
func TestReplicas(t *testing.T) {
	version := func(name, path string) apiextensionsv1.CustomResourceDefinitionVersion {
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: name == "v2", Subresources: &apiextensionsv1.CustomResourceSubresources{}}
		if path != "" {
			v.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: path}
		}
		return v
	}
	unserved := version("v2", ".spec.size")
	unserved.Served = false
	none, webhook := apiextensionsv1.NoneConverter, apiextensionsv1.WebhookConverter
	size, other, usual := []string{"spec", "size"}, []string{"spec", "other"}, protection.SpecReplicas
	type versions = []apiextensionsv1.CustomResourceDefinitionVersion
	for name, test := range map[string]struct {
		conversion apiextensionsv1.ConversionStrategyType
		versions   versions
		want       protection.Replicas
	}{
		"no scale":                      {none, versions{version("v1", "")}, protection.Replicas{Paths: [][]string{usual}, Version: "v1"}},
		"no scale, stored in another":   {none, versions{version("v1", ""), version("v2", "")}, protection.Replicas{Paths: [][]string{usual}, Version: "v2"}},
		"the same":                      {none, versions{version("v1", ".spec.size"), version("v2", ".spec.size")}, protection.Replicas{Paths: [][]string{size}, Scaled: size, Version: "v2"}},
		"two":                           {none, versions{version("v2", ".spec.other"), version("v1", ".spec.size")}, protection.Replicas{Paths: [][]string{other, size}, Scaled: size, Version: "v2"}},
		"that of another":               {none, versions{version("v1", ""), version("v2", ".spec.size")}, protection.Replicas{Paths: [][]string{size}, Version: "v2"}},
		"that of one that is not shown": {none, versions{version("v1", ""), unserved}, protection.Replicas{Paths: [][]string{size}, Version: "v1"}},
		"without subresources":          {none, versions{{Name: "v1", Served: true}, version("v2", ".spec.size")}, protection.Replicas{Paths: [][]string{size}, Version: "v2"}},
		"converted":                     {webhook, versions{version("v2", ".spec.other"), version("v1", ".spec.size")}, protection.Replicas{Paths: [][]string{size}, Scaled: size, Version: "v1"}},
		"converted from another":        {webhook, versions{version("v1", ""), version("v2", ".spec.size")}, protection.Replicas{Paths: [][]string{size, usual}, Version: "v1"}},
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: test.versions, Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: test.conversion}}}
		if got := replicasOf(definition, "v1"); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
