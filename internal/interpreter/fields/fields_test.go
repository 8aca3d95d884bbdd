package fields

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

func TestReadErrorsNameTheField(t *testing.T) {
	obj := map[string]any{
		"spec": map[string]any{
			"replicas":  "three",
			"half":      0.5,
			"negative":  int64(-1),
			"paused":    int64(1),
			"name":      true,
			"list":      []any{map[string]any{}, "x"},
			"labels":    map[string]any{"a": int64(1)},
			"null":      nil,
			"container": []any{},
		},
		"flat": "text",
	}
	cases := []struct {
		name string
		read func() error
		want string
	}{
		{"int", func() error { _, _, err := Int(obj, "spec", "replicas"); return err }, "spec.replicas: expected an integer, found a string"},
		{"fraction", func() error { _, _, err := Int(obj, "spec", "half"); return err }, "spec.half: expected an integer, found a number"},
		{"count", func() error { _, _, err := Count(obj, "spec", "negative"); return err }, "spec.negative: -1 is not between 0 and 2147483647"},
		{"bool", func() error { _, _, err := Bool(obj, "spec", "paused"); return err }, "spec.paused: expected a boolean, found a number"},
		{"string", func() error { _, _, err := String(obj, "spec", "name"); return err }, "spec.name: expected a string, found a boolean"},
		{"objects", func() error { _, err := Objects(obj, "spec", "list"); return err }, "spec.list[1]: expected an object, found a string"},
		{"strings", func() error { _, _, err := Strings(obj, "spec", "labels"); return err }, "spec.labels.a: expected a string, found a number"},
		{"map", func() error { _, _, err := Map(obj, "spec", "list"); return err }, "spec.list: expected an object, found a list"},
		{"slice", func() error { _, _, err := Slice(obj, "spec", "labels"); return err }, "spec.labels: expected a list, found an object"},
		{"on the way", func() error { _, _, err := Int(obj, "flat", "x", "y"); return err }, "flat: expected an object, found a string"},
		{"with", func() error { _, err := With(obj, 1, "flat", "x"); return err }, "flat: expected an object, found a string"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.read()
			if err == nil || err.Error() != tc.want {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if got := Under("root", err).Error(); got != "root."+tc.want {
				t.Fatalf("Under gave %q", got)
			}
		})
	}
	if _, found, err := Int(obj, "spec", "null"); found || err != nil {
		t.Fatalf("null is found=%v, err=%v; want absent", found, err)
	}
	if _, found, err := Int(obj, "spec", "missing", "deeper"); found || err != nil {
		t.Fatalf("missing is found=%v, err=%v; want absent", found, err)
	}
}

func TestChangesLeaveTheOriginalAlone(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	value := rapid.OneOf(
		rapid.Just[any](int64(1)), rapid.Just[any]("s"), rapid.Just[any](nil),
		rapid.Just[any](map[string]any{"a": map[string]any{"b": int64(2)}, "b": []any{"x"}}),
	)
	rapid.Check(t, func(t *rapid.T) {
		obj := rapid.MapOf(names, value).Draw(t, "object")
		path := rapid.SliceOfN(names, 1, 3).Draw(t, "path")
		before := runtime.DeepCopyJSON(obj)

		changed, err := With(obj, "new", path...)
		if !reflect.DeepEqual(obj, before) {
			t.Fatalf("With changed its input to %v", obj)
		}
		if err == nil {
			if got, found, err := String(changed, path...); got != "new" || !found || err != nil {
				t.Fatalf("after With the field is %q, %v, %v", got, found, err)
			}
			removed := Without(changed, path...)
			if found, _ := presence(removed, path); found {
				t.Fatalf("Without left the field in %v", removed)
			}
			if got, _, _ := String(changed, path...); got != "new" {
				t.Fatal("Without changed its input")
			}
		}
		Without(obj, path...)
		if !reflect.DeepEqual(obj, before) {
			t.Fatalf("Without changed its input to %v", obj)
		}
	})
}

func TestWithoutRemovesNull(t *testing.T) {
	obj := map[string]any{"metadata": map[string]any{"creationTimestamp": nil, "name": "x"}}
	got := Without(obj, "metadata", "creationTimestamp")
	if want := map[string]any{"metadata": map[string]any{"name": "x"}}; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
