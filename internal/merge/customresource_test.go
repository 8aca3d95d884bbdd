package merge_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/merge"
)

const gadget = `
apiVersion: example.com/v1
kind: Gadget
metadata: {name: g, namespace: shop}
spec:
  size: 1
  parts: [{id: a, num: 1}, {id: b, num: 2}]
  flags: [p, q]
  order: [1, 2]
  any: {deep: {list: [{k: v}]}}
`

// gadgetSchema is the schema of a custom resource in a member's OpenAPI document.
func gadgetSchema(t failer) managedfields.TypeConverter {
	t.Helper()
	text := `{"Gadget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Gadget"}],"properties":{
		"apiVersion":{"type":"string"},"kind":{"type":"string"},
		"metadata":{"type":"object","properties":{"managedFields":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},"name":{"type":"string"},"namespace":{"type":"string"},
			"labels":{"type":"object","additionalProperties":{"type":"string"}},"annotations":{"type":"object","additionalProperties":{"type":"string"}}}},
		"spec":{"type":"object","properties":{
			"size":{"type":"integer"},"colour":{"type":"string"},
			"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],"items":{"type":"object","properties":{"id":{"type":"string"},"num":{"type":"integer"},"extra":{"type":"string"}}}},
			"flags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
			"order":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"integer"}},
			"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}`
	var schemas map[string]*spec.Schema
	if err := json.Unmarshal([]byte(text), &schemas); err != nil {
		t.Fatal(err)
	}
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	return converter
}

// Custom resources are merged by the schema of the member if it is given, and otherwise by what the managed fields
// show.
func TestCustomResources(t *testing.T) {
	types := gadgetSchema(t)
	for name, merger := range map[string]*merge.Merger{"with schema": merge.New(types), "without": merge.New()} {
		t.Run(name, func(t *testing.T) {
			m := newMember(types, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, nil)
			first := merge.Stamp(edited(t, gadget, func(obj map[string]any) { mustSet(obj, map[string]any{}, "spec", "dropped") }), merge.Marks{})
			stored := first.DeepCopy()
			unstructured.RemoveNestedField(stored.Object, "spec", "dropped")
			m.write(t, merge.FieldManager, stored)
			m.edit(t, "member", func(obj map[string]any) {
				mustSet(obj, "red", "spec", "colour")
				mustSet(obj, append(at(obj, "spec", "parts").([]any), map[string]any{"id": "m", "num": int64(9)}), "spec", "parts")
				mustSet(obj, append(at(obj, "spec", "flags").([]any), "m"), "spec", "flags")
			})
			live := m.live()
			if _, changed, err := merger.Update(live, first); changed || err != nil {
				t.Fatalf("changed %v, err %v, want neither", changed, err)
			}
			manifest := merge.Stamp(edited(t, gadget, func(obj map[string]any) {
				mustSet(obj, []any{map[string]any{"id": "b", "num": int64(3)}, map[string]any{"id": "c", "num": int64(4)}}, "spec", "parts")
				mustSet(obj, []any{"q", "r"}, "spec", "flags")
				mustSet(obj, []any{int64(2)}, "spec", "order")
				unstructured.RemoveNestedField(obj, "spec", "size")
			}), merge.Marks{})
			merged, changed, err := merger.Update(live, manifest)
			if err != nil || !changed {
				t.Fatalf("changed %v, err %v", changed, err)
			}
			want := object(t, `{kind: Gadget, spec: {colour: red, parts: [{id: b, num: 3}, {id: m, num: 9}, {id: c, num: 4}], flags: [q, m, r], order: [2], any: {deep: {list: [{k: v}]}}}}`)
			if diff := cmp.Diff(want.Object["spec"], merged.Object["spec"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := m.fields.Update(merged, merge.FieldManager); err != nil {
				t.Fatal(err)
			}
			if _, changed, err := merger.Update(m.live(), manifest); changed || err != nil {
				t.Errorf("second time: changed %v, err %v", changed, err)
			}
		})
	}
}

// The definition of a custom kind decides how its lists are merged, even without managed fields: missing keys have
// their defaults, and nested lists have keys as well.
func TestDefinition(t *testing.T) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(`
metadata: {name: gates.example.org}
spec:
  group: example.org
  names: {kind: Gate, plural: gates}
  versions:
  - name: v1
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      ports: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port, protocol], items: {type: object, properties: {
        port: {type: integer}, protocol: {type: string, default: TCP}, name: {type: string},
        tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}},
      size: {x-kubernetes-int-or-string: true},
      anything: {type: object, x-kubernetes-preserve-unknown-fields: true},
      order: {type: array, items: {type: integer}}}}}}}
  - name: v2
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - name: v3
`), &definition); err != nil {
		t.Fatal(err)
	}
	live := `{apiVersion: example.org/%s, kind: Gate, metadata: {name: g}, spec: {ports: [
		{port: 80, protocol: TCP, name: web, tags: [a, member]}, {port: 80, protocol: UDP, name: member}], size: 1, order: [1, 2], anything: {x: [1]}}}`
	desired := `{apiVersion: example.org/%s, kind: Gate, metadata: {name: g}, spec: {ports: [{port: 80, name: front, tags: [a, b]}], size: 10%%, order: [3], anything: {y: 1}}}`
	for version, ports := range map[string]string{
		"v1": `[{port: 80, protocol: TCP, name: front, tags: [a, member, b]}, {port: 80, protocol: UDP, name: member}]`,
		"v2": `[{port: 80, name: front, tags: [a, b]}]`, // without a schema the list is one value
		"v3": `[{port: 80, name: front, tags: [a, b]}]`,
		"v4": `[{port: 80, name: front, tags: [a, b]}]`,
	} {
		types, err := merge.TypesOf(&definition, version)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		merged, changed, err := merge.New(types).Update(object(t, fmt.Sprintf(live, version)), merge.Stamp(object(t, fmt.Sprintf(desired, version)), merge.Marks{}))
		if err != nil || !changed {
			t.Fatalf("%s: changed %v, err %v", version, changed, err)
		}
		want := object(t, `{kind: Gate, spec: {ports: `+ports+`, size: 10%, order: [3], anything: {x: [1], y: 1}}}`)
		if diff := cmp.Diff(want.Object["spec"], merged.Object["spec"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}
