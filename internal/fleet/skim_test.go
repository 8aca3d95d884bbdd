package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"
)

// Every object is decoded as encoding/json does, without the managed fields, which Full adds.
func TestDecodeBare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := jsonObject(3).Draw(t, "object")
		metadata := jsonObject(2).Draw(t, "metadata")
		if managed := rapid.SliceOf(jsonValue(2)).Draw(t, "managed"); len(managed) > 0 {
			metadata["managedFields"] = managed
		}
		object["metadata"] = metadata
		encoded := encode(t, object, rapid.Bool().Draw(t, "indented"))
		want := decoded(t, encoded)

		bare, err := DecodeBare([]byte(encoded))
		if err != nil {
			t.Fatal(err)
		}
		full, err := bare.(*Bare).Full()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, full.Object); diff != "" {
			t.Fatalf("in full (-want +got):\n%s", diff)
		}
		trimmed := maps.Clone(want["metadata"].(map[string]any))
		delete(trimmed, "managedFields")
		want["metadata"] = trimmed
		if diff := cmp.Diff(want, bare.(*Bare).Object); diff != "" {
			t.Fatalf("bare (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, decoded(t, string(WithoutManagedFields([]byte(encoded))))); diff != "" {
			t.Fatalf("without managed fields (-want +got):\n%s", diff)
		}
	})
}

// Invalid JSON is an error, wherever it breaks.
func TestDecodeBareBroken(t *testing.T) {
	whole := `{"kind":"K","metadata":{"name":"n","managedFields":[{"manager":"m"}],"labels":{"a":"b"}},"spec":{"x":[1,2]}}`
	for i := range whole {
		if _, err := DecodeBare([]byte(whole[:i])); err == nil {
			t.Errorf("the first %d bytes are decoded as an object", i)
		}
	}
	for _, text := range []string{`[]`, `"x"`, `{"metadata":{"managedFields":[}}`, `{"metadata":{"managedFields" []}}`, `{"metadata":{,"managedFields":[]}}`, `{"metadata":{"managedFields":[]]}`} {
		if _, err := DecodeBare([]byte(text)); err == nil {
			t.Errorf("%s is decoded as an object", text)
		}
	}
}

// Objects that are known in the same version or a newer one are not decoded; deletions always are.
func TestKnownIsSkipped(t *testing.T) {
	known := func(namespace, name, version string) bool { return namespace == "ns" && name == "a" && version <= "5" }
	for object, want := range map[string]bool{
		`{"kind":"K","metadata":{"name":"a","namespace":"ns","resourceVersion":"5"}}`:          true,
		`{"kind":"K","metadata":{"name":"a","namespace":"ns","resourceVersion":"6"}}`:          false,
		`{"kind":"K","metadata":{"name":"b","namespace":"ns","resourceVersion":"5"}}`:          false,
		`{"kind":"K","metadata":{"name":"a","resourceVersion":"5"}}`:                           false,
		`{"kind":"K","metadata":{"resourceVersion":"5"}}`:                                      false,
		`{"kind":"K","metadata":{"name":"\u0061","namespace":"ns","resourceVersion":"5"}}`:     false,
		`{"spec":{"metadata":{"name":"a","namespace":"ns","resourceVersion":"5"}},"kind":"K"}`: false,
	} {
		for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
			body := strings.NewReader(fmt.Sprintf("{\"type\":%q,\"object\":%s}\n", kind, object))
			got, obj, err := (&eventReader{body: io.NopCloser(body), lines: newLines(body), decode: DecodeUnstructured, known: known}).Decode()
			if err != nil || got != kind {
				t.Fatalf("%s %s: %s, %v", kind, object, got, err)
			}
			want := want && (kind == watch.Added || kind == watch.Modified)
			if _, got := obj.(*passed); got != want {
				t.Errorf("%s %s is skipped: %t", kind, object, got)
			}
			if version := obj.(metav1.Object).GetResourceVersion(); want && version != "5" {
				t.Errorf("the skipped object has the version %q", version)
			}
		}
	}
}

// Items have the kind of the list, unless they have their own.
func TestDecodeList(t *testing.T) {
	list, err := decodeList([]byte(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7","continue":"c"},
		"items":[{"metadata":{"name":"a","managedFields":[{"manager":"m"}]}},{"kind":"Gadget","apiVersion":"v1","metadata":{"name":"b"}}]}`), DecodeBare)
	if err != nil {
		t.Fatal(err)
	}
	if list.ResourceVersion != "7" || list.Continue != "c" {
		t.Errorf("the list is %+v", list.ListMeta)
	}
	var got []string
	for _, item := range list.Items {
		got = append(got, item.GetObjectKind().GroupVersionKind().String()+" "+item.(*Bare).GetName())
	}
	if diff := cmp.Diff([]string{"example.com/v1, Kind=Widget a", "/v1, Kind=Gadget b"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if clone := list.DeepCopyObject().(*objectList); !cmp.Equal(list.ListMeta, clone.ListMeta) || len(clone.Items) != len(list.Items) {
		t.Errorf("a copy is %+v", clone)
	}
	for _, body := range []string{`<html>`, `{"items":[{]}`, `{"items":["a"]}`} {
		if _, err := decodeList([]byte(body), DecodeBare); err == nil {
			t.Errorf("%s is decoded as a list", body)
		}
	}
}

// Objects of members are mostly managed fields.
func BenchmarkDecode(b *testing.B) {
	for name, decode := range map[string]Decode{
		"bare": DecodeBare, "unstructured": DecodeUnstructured,
		"full": func(object []byte) (runtime.Object, error) {
			bare, err := DecodeBare(object)
			if err != nil {
				return nil, err
			}
			return bare.(*Bare).Full()
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			buffer := make([]byte, len(deploymentJSON))
			for b.Loop() {
				copy(buffer, deploymentJSON)
				if _, err := decode(buffer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

const deploymentJSON = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop","uid":"5e5e2f55-0f8c-4d7e-9c1b-0f6b3c0c8b11","resourceVersion":"4711","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"web","tier":"backend"},"annotations":{"example.com/team":"payments"},"managedFields":[` +
	`{"manager":"cellplane","operation":"Update","apiVersion":"apps/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:example.com/team":{}},"f:labels":{".":{},"f:app":{},"f:tier":{}}},"f:spec":{"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:tier":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"LOG\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}}},` +
	`{"manager":"kube-controller-manager","operation":"Update","apiVersion":"apps/v1","time":"2026-01-01T00:00:01Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:deployment.kubernetes.io/revision":{}}},"f:status":{"f:availableReplicas":{},"f:conditions":{".":{},"k:{\"type\":\"Available\"}":{".":{},"f:lastTransitionTime":{},"f:lastUpdateTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}},"f:observedGeneration":{},"f:readyReplicas":{},"f:replicas":{},"f:updatedReplicas":{}}},"subresource":"status"}]},` +
	`"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web","tier":"backend"}},"spec":{"containers":[{"name":"app","image":"registry.example/app:1","env":[{"name":"LOG","value":"info"}],"resources":{"requests":{"cpu":"10m","memory":"16Mi"}},"imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}},"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}},"revisionHistoryLimit":10,"progressDeadlineSeconds":600},` +
	`"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2,"conditions":[{"type":"Available","status":"True","lastUpdateTime":"2026-01-01T00:00:01Z","lastTransitionTime":"2026-01-01T00:00:01Z","reason":"MinimumReplicasAvailable","message":"Deployment has minimum availability."}]}}`

func jsonObject(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(jsonText(), jsonValue(depth), 0, 4)
}

func jsonText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom([]string{"name", "namespace", "resourceVersion", "metadata", "managedFields", `"`, `\`, `a"b`, `,"managedFields":[`, "{", "]", ""}), rapid.String())
}

func jsonValue(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64Range(-1<<40, 1<<40).AsAny(), rapid.Float64Range(-1e6, 1e6).AsAny(), jsonText().AsAny()}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	return rapid.OneOf(append(scalars, jsonObject(depth-1).AsAny(), rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return jsonValue(depth - 1) }), 0, 3).AsAny())...)
}

func encode(t *rapid.T, value any, indented bool) string {
	marshal := json.Marshal
	if indented {
		marshal = func(value any) ([]byte, error) { return json.MarshalIndent(value, " ", "\t") }
	}
	encoded, err := marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

func decoded(t *rapid.T, text string) map[string]any {
	obj, err := decodeJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func decodeJSON(text string) (map[string]any, error) {
	var object map[string]any
	return object, utiljson.Unmarshal([]byte(text), &object)
}
