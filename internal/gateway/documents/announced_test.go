package documents

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	some        = announced{kinds.NewAnnounced(configMaps, namespaces, deployments)}
)

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
		"/apis/apps/v2/": false, "/apis/apps/v2/deployments": false, "/api/v2/configmaps": false,
	} {
		if left, removed, err := some.operations(path, []byte(`{"get":{}}`)); err != nil || (left != nil) != want || removed == want {
			t.Errorf("%s: %s is left, %v", path, left, err)
		}
	}
	pods := announced{kinds.NewAnnounced(schema.GroupVersionResource{Version: "v1", Resource: "pods"})}
	if left, _, _ := pods.operations("/api/v1/namespaces/{name}/status", []byte(`{"get":{}}`)); left != nil {
		t.Error("the status of namespaces is kept, but not namespaces")
	}
}

// TestKeepsOperations checks that the description of a limited API has the verbs that discovery lists, and no others.
func TestKeepsOperations(t *testing.T) {
	a := announced{kinds.NewLimited(map[schema.GroupVersion]map[string][]string{{Version: "v1"}: {
		"configmaps": {"get", "watch", "create", "delete"}, "pods/log": {"get"}, "pods/proxy": {"get", "create", "delete"}, "namespaces/status": {"get"},
	}})}
	const all = `{"parameters":[],"get":{},"head":{},"post":{},"put":{},"patch":{},"delete":{},"options":{}}`
	for path, want := range map[string]string{
		"/version/": "parameters get head post put patch delete options",
		"/api/v1/":  "parameters get head post put patch delete options", "/apis/apps/": "", "/apis/apps/v1/": "", "/apis/apps/v1/deployments": "",
		"/api/v1/configmaps":                                          "get head post",
		"/api/v1/namespaces/{namespace}/configmaps":                   "get head post",
		"/api/v1/namespaces/{namespace}/configmaps/{name}":            "get head post delete",
		"/api/v1/watch/namespaces/{namespace}/configmaps/{name}":      "get head post delete",
		"/api/v1/namespaces/{namespace}/pods":                         "",
		"/api/v1/namespaces/{namespace}/pods/{name}":                  "",
		"/api/v1/namespaces/{namespace}/pods/{name}/log":              "get head",
		"/api/v1/namespaces/{namespace}/pods/{name}/exec":             "",
		"/api/v1/namespaces/{namespace}/pods/{name}/proxy":            "get head post delete",
		"/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}":     "get head post delete",
		"/api/v1/namespaces/{name}":                                   "",
		"/api/v1/namespaces/{name}/status":                            "get head",
		"/api/v1/namespaces/{name}/finalize":                          "",
		"/api/v1/watch/secrets":                                       "",
		"/api/v1/watch/namespaces/{namespace}/pods":                   "",
		"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token": "",
	} {
		left, _, err := a.operations(path, []byte(all))
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if left != nil && json.Unmarshal(left, &fields) != nil {
			t.Fatalf("%s became %s", path, left)
		}
		if want != "" && !strings.Contains(want, "parameters") {
			want += " parameters"
		}
		if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, slices.Sorted(slices.Values(strings.Fields(want)))) {
			t.Errorf("%s describes %v, want %v", path, got, want)
		}
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
			t.Errorf("got %s", got)
		}
	}
	for _, broken := range []string{"", "[]", "{}", `{"paths":[]}`, `{"paths":{"/api/v1/pods":{}},"definitions":1}`, `{"paths":{"/api/v1/pods":{}},"components":1}`, `{"paths":{"/api/v1/pods":{}},"components":{"schemas":1}}`} {
		if got, err := some.description([]byte(broken)); err == nil {
			t.Errorf("%s became %s", broken, got)
		}
	}
}

func TestWholeDescription(t *testing.T) {
	left, err := some.description([]byte(`{"paths":{"/version/":{},"/apis/apps/":{},"/apis/apps/v1/deployments":{}},"definitions":{"unused":{}}}`))
	if left != nil || err != nil {
		t.Errorf("a document with nothing to remove: got %s, %v", left, err)
	}
}

func TestIndex(t *testing.T) {
	index := []byte(`{"paths":{"version":{"serverRelativeURL":"/openapi/v3/version?hash=EF"},"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=AB"},` +
		`"apis/apps":{"serverRelativeURL":"/openapi/v3/apis/apps?hash=01"},"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=23"},` +
		`"apis/batch":{"serverRelativeURL":"/openapi/v3/apis/batch?hash=45"},"apis/batch/v1":{"serverRelativeURL":"/openapi/v3/apis/batch/v1?hash=CD"}}}`)
	hashes := func(a announced) map[string]string {
		t.Helper()
		got, err := a.index(index)
		var read indexDocument
		if err == nil {
			err = json.Unmarshal(got, &read)
		}
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for path, at := range read.Paths {
			_, found[path], _ = strings.Cut(at.ServerRelativeURL, "hash=")
		}
		return found
	}
	all, fewer := hashes(some), hashes(announced{kinds.NewAnnounced(configMaps, deployments)})
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"api/v1", "apis/apps", "apis/apps/v1", "version"}) {
		t.Errorf("the index has %v", got)
	}
	for path, hash := range all {
		if changed := fewer[path] != hash; changed != (path == "api/v1") {
			t.Errorf("with less announced of api/v1, the hash of %s is %s after %s", path, fewer[path], hash)
		}
	}
}

func TestUnmarked(t *testing.T) {
	for _, test := range []struct{ query, mark, want string }{
		{"", "12ab", ""},
		{"hash=CD12ab", "12ab", "hash=CD"},
		{"hash=CD34cd", "12ab", "hash=other"},
		{"hash=CD", "12ab", "hash=other"},
		{"hash=12ab", "12ab", "hash=other"},
		{"hash=EF", "", "hash=EF"},
	} {
		query, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		if got := unmarked(query, test.mark); got != test.want {
			t.Errorf("%s without %s is %s, want %s", test.query, test.mark, got, test.want)
		}
	}
}
