package objbytes_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// FuzzEdit checks that a decoder reads an edited object as the original with the edit, and nothing else changed.
func FuzzEdit(f *testing.F) {
	for _, seed := range hostileJSON {
		f.Add([]byte(seed), "x", "new", "z", "", true)
	}
	for _, seed := range hostileProtobuf(f) {
		f.Add(seed, "x", "", "a", "\"quoted\"", true)
		f.Add(seed, "k", "v", "", "empty", false)
	}
	f.Fuzz(func(t *testing.T, object []byte, label, labelValue, annotation, annotationValue string, clearVersion bool) {
		edit := objbytes.Edit{Labels: map[string]string{label: labelValue}, Annotations: map[string]string{annotation: annotationValue}, ClearVersion: clearVersion}
		edited, err := edit.Apply(object)
		if err != nil {
			return
		}
		apply := func(o metav1.Object) {
			o.SetLabels(changed(o.GetLabels(), label, labelValue))
			o.SetAnnotations(changed(o.GetAnnotations(), annotation, annotationValue))
			if clearVersion {
				o.SetResourceVersion("")
			}
		}
		if before, ok := decodeProtobuf(object); ok {
			after, ok := decodeProtobuf(edited)
			if !ok {
				t.Fatalf("%q became %q, which no decoder reads", object, edited)
			}
			apply(&before)
			if !equality.Semantic.DeepEqual(before, after) {
				t.Errorf("%q became %q", object, edited)
			}
			return
		}
		before, after := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		if utiljson.Unmarshal(object, &before.Object) != nil || before.Object == nil || !stringMaps(before.Object) || !valid(label, labelValue, annotation, annotationValue) {
			return
		}
		if err := utiljson.Unmarshal(edited, &after.Object); err != nil {
			t.Fatalf("%q became %q: %v", object, edited, err)
		}
		apply(before)
		for _, o := range []*unstructured.Unstructured{before, after} { // empty and absent maps are the same
			o.SetLabels(changed(o.GetLabels(), "", ""))
			o.SetAnnotations(changed(o.GetAnnotations(), "", ""))
		}
		if !equality.Semantic.DeepEqual(before.Object, after.Object) {
			t.Errorf("%q became %q", object, edited)
		}
	})
}

func changed(m map[string]string, key, value string) map[string]string {
	result := map[string]string{}
	for k, v := range m {
		result[k] = v
	}
	if delete(result, key); value != "" {
		result[key] = value
	}
	if len(result) == 0 {
		return nil
	}
	return result
}

// valid reports whether strings survive JSON, which has no invalid UTF-8.
func valid(texts ...string) bool {
	for _, text := range texts {
		if decoded, err := objbytes.String(objbytes.AppendQuoted(nil, text)); err != nil || string(decoded) != text {
			return false
		}
	}
	return true
}
