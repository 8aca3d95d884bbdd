package gateway_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/cellplane/cellplane/internal/testenv/doors"
)

// testForms sends requests in forms that no client uses, for objects that are protected and for one that asks for durability: other spellings of
// options, contradictions between the path, the query and the body, members that occur twice, and other encodings.
func (m *durableMatrix) testForms(t *testing.T) {
	deployments, widgets := m.kind(t, "apps", "deployments"), m.kind(t, "guards.example.io", "widgets")
	label := map[string]string{doors.Label: "protected"}
	for _, kind := range []doors.Kind{deployments, widgets} {
		object := m.create(t, kind, m.namespace, "odd", label)
		m.create(t, kind, m.namespace, "odd-other", nil)
		path, group := kind.Path(m.namespace, "odd"), object.GetAPIVersion()
		collection := strings.TrimSuffix(kind.Path(m.namespace, ""), "/")
		encoded, err := cbor.Marshal(map[string]any{"apiVersion": group, "kind": kind.Kind, "metadata": map[string]any{"name": "odd"}, "spec": map[string]any{"replicas": 0}})
		must(t, err)
		other := strings.Replace(string(mustJSON(t, object)), `"name":"odd"`, `"name":"odd-other"`, 1)
		const merge, operations, apply, inJSON = "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml", "application/json"
		for _, test := range []struct{ method, path, query, contentType, body string }{
			{"DELETE", path, "dryRun=", "", ""},
			{"DELETE", path, "dryRun=all", "", ""},
			{"DELETE", path, "dryRun=All", inJSON, "{}"}, // the query does not count
			{"DELETE", path, "orphanDependents=true", "", ""},
			{"DELETE", path, "orphanDependents=true&propagationPolicy=Foreground", inJSON, `{"propagationPolicy":"Orphan"}`},
			{"DELETE", path, "", inJSON, "null"},
			{"DELETE", path, "", inJSON, `{"dryRun":["All"],"dryRun":[]}`},
			{"DELETE", path, "", inJSON, `{"preconditions":{"resourceVersion":"5"},"preconditions":null}`},
			{"DELETE", path, "", "application/cbor", "\xd9\xd9\xf7\xa0"},
			{"DELETE", path + "/", "", "", ""},
			{"DELETE", collection + "/", "labelSelector=doors", "", ""},
			{"DELETE", collection, "labelSelector=doors+in+(protected)&limit=-1", "", ""},
			{"DELETE", collection, "labelSelector=doors&labelSelector=nothing&limit=1", "", ""},
			{"DELETE", collection, "resourceVersion=0&fieldSelector=metadata.name%3D%3Dodd", "", ""},
			{"DELETE", collection, "dryRun=All&fieldSelector=metadata.name%3Dodd", inJSON, "{}"},
			{"DELETE", collection + "%2Fodd", "", "", ""},
			{"DELETE", strings.Replace(path, "/namespaces/", "/watch/namespaces/", 1), "", "", ""},
			{"POST", path, "", inJSON, `{"kind":"DeleteOptions","apiVersion":"v1"}`},
			{"POST", path + "/eviction", "", inJSON, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"odd"}}`},
			{"PUT", kind.Path(m.namespace, "odd-other"), "", inJSON, strings.Replace(string(mustJSON(t, object)), `"replicas":10`, `"replicas":0`, 1)},
			{"PUT", path, "", inJSON, strings.Replace(other, `"replicas":10`, `"replicas":0`, 1)},
			{"PUT", path + "/scale", "", inJSON, `{"apiVersion":"extensions/v1beta1","kind":"Scale","metadata":{"name":"odd"},"spec":{"replicas":0}}`},
			{"PUT", path + "/scale", "", inJSON, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"odd-other"},"spec":{"replicas":0}}`},
			{"PUT", path + "/scale", "", inJSON, `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"odd"},"spec":{"replicas":10},"spec":{"replicas":0}}`},
			{"PUT", path + "/scale", "", "application/cbor", string(encoded)},
			{"PATCH", path, "", merge, `{"spec":{"replicas":0},"spec":{"replicas":0}}`},
			{"PATCH", path, "", merge, `{"metadata":{"labels":{"doors":"protected","doors":null}}}`},
			{"PATCH", path, "", merge, `{"metadata":{"labels":null}}`},
			{"PATCH", path, "", merge, `{"metadata":null,"spec":{"replicas":0}}`},
			{"PATCH", path, "", merge, `{"metadata":{"annotations":{"cellplane.io/break-glass":"now"}},"spec":{"replicas":0}}`},
			{"PATCH", path, "", merge, `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0}}`},
			{"PATCH", path, "", merge, `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"finalizers":["example.io/none"]}}`},
			{"PATCH", path, "", merge, `{"metadata":{"name":"odd-other"},"spec":{"replicas":0}}`},
			{"PATCH", path, "dryRun=all", merge, `{"spec":{"replicas":0}}`},
			{"PATCH", path, "dryRun=", merge, `{"spec":{"replicas":0}}`},
			{"PATCH", path, "fieldValidation=Ignore&pretty=true", merge, `{"spec":{"replicas":0,"Replicas":10}}`},
			{"PATCH", path, "", "Application/Merge-Patch+JSON", `{"spec":{"replicas":0}}`},
			{"PATCH", path, "", merge + ";charset=utf-16", `{"spec":{"replicas":0}}`},
			{"PATCH", path + "/", "", merge, `{"spec":{"replicas":0}}`},
			{"PATCH", path + "/scale/", "", merge, `{"spec":{"replicas":0}}`},
			{"PATCH", path, "", operations, `[{"op":"replace","path":"/spec","value":{}}]`},
			{"PATCH", path, "", operations, `[{"op":"remove","path":"/metadata/resourceVersion"},{"op":"replace","path":"/spec/replicas","value":0}]`},
			{"PATCH", path, "", operations, `[{"op":"replace","path":"","value":{}}]`},
			{"PATCH", path, "", operations, `[{"op":"replace","path":"/metadata/uid","value":"other"},{"op":"replace","path":"/spec/replicas","value":0}]`},
			{"PATCH", path, "fieldManager=odd&force=true", apply, "apiVersion: " + group + "\nkind: " + kind.Kind + "\nmetadata: {name: odd}\nspec: {replicas: 10}\nspec: {replicas: 0}\n"},
			{"PATCH", path, "fieldManager=odd&force=true", apply, "apiVersion: " + group + "\nkind: " + kind.Kind + "\nmetadata: {name: odd}\nspec: {replicas: 10}\n---\nspec: {replicas: 0}\n"},
			{"PATCH", path, "fieldManager=odd&force=true", apply, "a: &r 0\napiVersion: " + group + "\nkind: " + kind.Kind + "\nmetadata: {name: odd}\nspec: {replicas: *r}\n"},
			{"PATCH", path, "fieldManager=odd&force=true", "application/apply-patch+cbor", string(encoded)},
		} {
			code, answer := m.send(t, "", test.method, test.path, test.query, test.contentType, []byte(test.body))
			if harm := harmDone(object, m.get(t, kind, m.namespace, "odd")); harm != "" {
				t.Fatalf("%+v: %d %s; the object %s", test, code, answer, harm)
			}
		}
	}
	m.testDurableForms(t)
}

// testDurableForms sends requests that look like dry runs, for an object that asks for durability. Only dry runs may succeed.
func (m *durableMatrix) testDurableForms(t *testing.T) {
	t.Helper()
	maps := m.kind(t, "", "configmaps")
	object := m.createInCell(t, maps, m.durable, "odd", nil)
	path, collection := maps.Path(m.durable, object.GetName()), strings.TrimSuffix(maps.Path(m.durable, ""), "/")
	const merge, inJSON, change = "application/merge-patch+json", "application/json", `{"data":{"changed":"yes"}}`
	for _, test := range []struct{ method, path, query, contentType, body string }{
		{"DELETE", path, "dryRun=All", inJSON, "{}"},
		{"DELETE", path, "dryRun=All", inJSON, " "},
		{"DELETE", path, "", inJSON, `{"dryRun":["All"],"dryRun":[]}`},
		{"DELETE", path, "", inJSON, `{"dryRun":["All"],"dryRun":null}`},
		{"DELETE", path, "", inJSON, `{"DryRun":["All"]}`},
		{"DELETE", path, "", "application/yaml", "dryRun: []\n"},
		{"DELETE", collection, "dryRun=All", inJSON, "{}"},
		{"PATCH", path, "dryRun=", merge, change},
		{"PATCH", path, "dryRun=all", merge, change},
		{"PATCH", path, "dryRun=All&dryRun=", merge, change},
		{"PATCH", path, "DryRun=All", merge, change},
		{"PATCH", path, "dryRun=All;", merge, change},
		{"PATCH", path, "%64ryRun=All%20", merge, change},
		{"PATCH", path + "/", "", merge, change},
	} {
		code, answer := m.send(t, "", test.method, test.path, test.query, test.contentType, []byte(test.body))
		after := m.get(t, maps, m.durable, object.GetName())
		if after == nil || after.GetResourceVersion() != object.GetResourceVersion() {
			t.Fatalf("%+v: %d %s; the object is %v", test, code, answer, after)
		}
		if code < 300 {
			t.Errorf("%+v: %d %s, and it is not replicated", test, code, answer)
		}
	}
	if err := m.client.CoreV1().ConfigMaps(m.durable).Delete(context.Background(), object.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
}

func mustJSON(t *testing.T, object interface{ MarshalJSON() ([]byte, error) }) []byte {
	t.Helper()
	data, err := object.MarshalJSON()
	must(t, err)
	return data
}
