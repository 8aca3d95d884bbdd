package lua

import (
	"context"
	"math"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

// jsonValue generates values of unstructured objects.
func jsonValue() *rapid.Generator[any] {
	key := rapid.SampledFrom([]string{"a", "b", "list", "kubernetes.io/x", "0", "", "[0]"})
	var value *rapid.Generator[any]
	value = rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Int64().Draw(t, "int")
		case 3:
			return rapid.Float64Range(-1e300, 1e300).Draw(t, "float")
		case 4, 5:
			return rapid.String().Draw(t, "string")
		case 6, 7:
			list := rapid.SliceOfN(value, 0, 3).Draw(t, "list")
			if list == nil {
				list = []any{}
			}
			return list
		default:
			return rapid.MapOfN(key, value, 0, 4).Draw(t, "object")
		}
	})
	return value
}

// TestRoundTrip checks that values that a script does not touch are unchanged, including empty lists and objects, nulls,
// integers beyond 2^53 and whole floats.
func TestRoundTrip(t *testing.T) {
	r := NewRunner(Limits{}, nil)
	script, err := Compile("c", "F", `function F(obj) return obj end`)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := map[string]any{"root": jsonValue().Draw(t, "value")}
		before := runtime.DeepCopyJSON(in)
		out, err := r.Call(context.Background(), script, 1, in)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(out[0], any(before)) {
			t.Fatalf("%#v\ncame back as\n%#v", before, out[0])
		}
		if !reflect.DeepEqual(in, before) {
			t.Fatal("the argument changed")
		}
	})
}

func TestConversion(t *testing.T) {
	r := NewRunner(Limits{}, nil)
	obj := map[string]any{
		"spec": map[string]any{
			"emptyList": []any{}, "emptyObject": map[string]any{}, "null": nil, "list": []any{"x"}, "big": int64(math.MaxInt64 - 1),
			"items": []any{map[string]any{"volume": map[string]any{"emptyDir": map[string]any{}}}}, "nulls": []any{nil, "x", nil},
		},
	}
	cases := []struct {
		name, body string
		want       any
	}{
		{"moved values keep their nature", `return {a = o.spec.emptyList, b = o.spec.emptyObject, c = o.spec.big}`,
			map[string]any{"a": []any{}, "b": map[string]any{}, "c": int64(math.MaxInt64 - 1)}},
		{"a list emptied by a script stays a list", `table.remove(o.spec.list) return o.spec.list`, []any{}},
		{"a new empty table takes the nature of what was there", `return {spec = {list = {}, emptyObject = {}, items = {{volume = {emptyDir = {}}}}}}`,
			map[string]any{"spec": map[string]any{"list": []any{}, "emptyObject": map[string]any{}, "items": []any{map[string]any{"volume": map[string]any{"emptyDir": map[string]any{}}}}}}},
		{"a new empty table nobody knows is left out", `return {a = {}, b = 1}`, map[string]any{"b": int64(1)}},
		{"an empty element of a list is an object", `return {{}, {a = 1}}`, []any{map[string]any{}, map[string]any{"a": int64(1)}}},
		{"null stays and can be set", `o.spec.x = o.spec.null return {o.spec.nulls, n = nil}`, []any{[]any{nil, "x", nil}}},
		{"null can be overwritten", `o.spec.null = 1 return o.spec.null`, int64(1)},
		{"whole numbers are integers", `return {4 / 2, 2.5, -0.0, 1e15}`, []any{int64(2), 2.5, int64(0), int64(1e15)}},
		{"numbers beyond int64 stay floats", `return {2^64, -2^70}`, []any{math.Pow(2, 64), -math.Pow(2, 70)}},
		{"nothing", `return`, nil},
		{"an empty table as a whole is for the caller to judge", `return {}`, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			before := runtime.DeepCopyJSON(obj)
			out, err := runScript(t, r, "function F(o) "+tc.body+" end", 1, obj)
			if err != nil || !reflect.DeepEqual(out[0], tc.want) {
				t.Fatalf("got %#v, %v, want %#v", out, err, tc.want)
			}
			if !reflect.DeepEqual(obj, before) {
				t.Fatal("the argument changed")
			}
		})
	}
	if _, err := runScript(t, r, "function F(o) end", 0, map[string]any{"x": []any{make(chan int)}}); err == nil {
		t.Fatal("a value that JSON cannot represent was accepted")
	}
}

// FuzzScript feeds arbitrary source to the compiler and the machine.
func FuzzScript(f *testing.F) {
	r := NewRunner(Limits{Steps: 20_000, Memory: 1 << 20}, nil)
	for _, seed := range []string{
		"function F(o) return o end", "F = function(...) return ... end", "function F(o) o.a[1], o.b = {[o] = 1}, #o .. 1 return o end",
		"function F(o) return (o.s:gsub('(.)(.-)%1', '%2%0')) end", "function F() goto x ::x:: return 1 end", "local F", "\x00concat(1)",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, source string) {
		script, err := Compile("fuzz", "F", source)
		if err != nil {
			return
		}
		_, _ = r.Call(context.Background(), script, 1, map[string]any{"a": []any{int64(1)}, "s": "text"})
	})
}

func BenchmarkCall(b *testing.B) {
	r := NewRunner(Limits{}, nil)
	deployment := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "namespace": "default", "labels": map[string]any{"app": "web"}, "generation": int64(3)},
		"spec": map[string]any{
			"replicas": int64(3), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "web", "image": "web:1", "resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}},
				}}},
			},
		},
		"status": map[string]any{"replicas": int64(3), "readyReplicas": int64(3), "observedGeneration": int64(3)},
	}
	for name, source := range map[string]string{
		"health":   `function F(o) return o.status.observedGeneration == o.metadata.generation and o.status.readyReplicas >= o.spec.replicas end`,
		"replicas": `local kube = require("kube") function F(o) return {o.spec.replicas, kube.accuratePodRequirements(o.spec.template)} end`,
		"revise":   `function F(o) o.spec.replicas = 7 return o end`,
	} {
		b.Run(name, func(b *testing.B) {
			script, err := Compile("c", "F", source)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Call(context.Background(), script, 1, deployment); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
