package documents

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var some = Exposed{{Resource: "configmaps"}: true, {Resource: "namespaces"}: true, {Group: "apps", Resource: "deployments"}: true}

func TestKeeps(t *testing.T) {
	for path, want := range map[string]bool{
		"/version/": true, "/api/": true, "/apis/": true, "/.well-known/openid-configuration/": true,
		"/api/v1/": true, "/apis/apps/": true, "/apis/apps/v1/": true, "/apis/batch/": false, "/apis/batch/v1/": false,
		"/api/v1/configmaps": true, "/api/v1/secrets": false, "/api/v1/watch/configmaps": true, "/api/v1/watch/secrets": false,
		"/api/v1/namespaces/{namespace}/configmaps/{name}": true, "/api/v1/namespaces/{namespace}/secrets": false,
		"/api/v1/watch/namespaces/{namespace}/configmaps": true,
		"/api/v1/namespaces/{name}":                       true, "/api/v1/namespaces/{name}/finalize": true, "/api/v1/namespaces/{name}/status": true,
		"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale": true, "/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale": false,
		"/apis/batch/v1/namespaces/{namespace}/configmaps": false,
	} {
		if got := some.keeps(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if (Exposed{{Resource: "pods"}: true}).keeps("/api/v1/namespaces/{name}/status") {
		t.Error("the status of namespaces is kept without them")
	}
}

func TestDescription(t *testing.T) {
	const paths = `"paths":{"/apis/apps/v1/deployments":{"get":{"schema":{"$ref":"#/AT/Deployment"}}},"/apis/apps/v1/statefulsets":{"get":{"schema":{"$ref":"#/AT/StatefulSet"}}}}`
	const schemas = `{"Deployment":{"x":{"$ref": "#/AT/Pod"}},"StatefulSet":{"x":{"$ref":"#/AT/Pod"},"y":{"$ref":"#/AT/Claim"}},"Pod":{"$ref":"#/AT/Pod"},"Claim":{}}`
	for at, document := range map[string]string{
		"definitions":        `{"swagger":"2.0",` + paths + `,"definitions":` + schemas + `}`,
		"components/schemas": `{"openapi":"3.0.0",` + paths + `,"components":{"securitySchemes":{},"schemas":` + schemas + `}}`,
	} {
		got, err := some.description([]byte(strings.ReplaceAll(document, "AT", at)))
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Paths       map[string]any
			Definitions map[string]any
			Components  struct{ Schemas, SecuritySchemes map[string]any }
		}
		if err := json.Unmarshal(got, &read); err != nil {
			t.Fatal(err)
		}
		left := slices.Sorted(maps.Keys(read.Definitions))
		if at != "definitions" {
			left = slices.Sorted(maps.Keys(read.Components.Schemas))
		}
		if len(read.Paths) != 1 || read.Paths["/apis/apps/v1/deployments"] == nil || !slices.Equal(left, []string{"Deployment", "Pod"}) {
			t.Errorf("left is %s", got)
		}
	}
	for _, broken := range []string{"", "[]", "{}", `{"paths":[]}`, `{"paths":{},"definitions":1}`, `{"paths":{},"components":1}`, `{"paths":{},"components":{"schemas":1}}`} {
		if got, err := some.description([]byte(broken)); err == nil {
			t.Errorf("%s became %s", broken, got)
		}
	}
}

func TestIndex(t *testing.T) {
	index := []byte(`{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=AB"},"apis/batch/v1":{"serverRelativeURL":"/openapi/v3/apis/batch/v1?hash=CD"}}}`)
	got, err := some.index(index)
	if err != nil || strings.Contains(string(got), "batch") || !strings.Contains(string(got), "/openapi/v3/api/v1?hash=AB"+some.mark()) {
		t.Errorf("the index became %s, %v", got, err)
	}
	if other := (Exposed{schema.GroupResource{Resource: "configmaps"}: true}); other.mark() == some.mark() {
		t.Error("less is exposed under the same hash")
	}
}
