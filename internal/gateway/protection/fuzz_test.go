package protection

import (
	"bytes"
	"encoding/json"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const judgedVersion = "4711"

func judgedObject() *object {
	o := &object{}
	o.Metadata.UID, o.Metadata.ResourceVersion = "some-uid", judgedVersion
	return o
}

// FuzzPinDeletion checks that what is sent instead of any options deletes nothing but the version that was judged.
func FuzzPinDeletion(f *testing.F) {
	for _, body := range []string{"", "{}", "null", `{"preconditions":{"uid":"x"}}`, `{"Preconditions":{"resourceVersion":"1"}}`, `{"preconditions":null,"preconditions":{}}`, "propagationPolicy: Background", "k8s\x00"} {
		f.Add(0, []byte(body), "propagationPolicy=Background")
		f.Add(1, []byte(body), "")
		f.Add(2, []byte(body), "gracePeriodSeconds=x")
	}
	contentTypes := []string{runtime.ContentTypeJSON, "application/yaml", runtime.ContentTypeProtobuf}
	f.Fuzz(func(t *testing.T, form int, body []byte, rawQuery string) {
		query, err := url.ParseQuery(rawQuery)
		if err != nil {
			return
		}
		pinned, contentType, err := pinDeletion(contentTypes[abs(form)%len(contentTypes)], body, query, judgedObject())
		if err != nil {
			return // it is refused, or has a version of its own
		}
		var options metav1.DeleteOptions
		if contentType == runtime.ContentTypeProtobuf {
			err = options.Unmarshal(raw(t, pinned))
		} else {
			err = utiljson.Unmarshal(pinned, &options)
		}
		if err != nil {
			return // the API server cannot read it either
		}
		if options.Preconditions == nil || options.Preconditions.ResourceVersion == nil || *options.Preconditions.ResourceVersion != judgedVersion {
			t.Errorf("%q became %q, which deletes any version", body, pinned)
		}
	})
}

// FuzzPinWrite checks that what is sent instead of any object or patch changes nothing but the version that was judged.
func FuzzPinWrite(f *testing.F) {
	for _, body := range []string{"", "{}", "null", "[]", `{"metadata":null}`, `{"metadata":{"resourceVersion":""}}`, `{"Metadata":{"resourceVersion":"1"}}`, `{"metadata":{"ResourceVersion":"1"}}`,
		`[{"op":"replace","path":"/spec/replicas","value":6}]`, "spec:\n  replicas: 6\n", "k8s\x00\x12\x04\x0a\x02\x32\x00"} {
		for form := range 6 {
			f.Add(form, []byte(body))
		}
	}
	contentTypes := []string{runtime.ContentTypeJSON, "application/yaml", runtime.ContentTypeProtobuf, string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	f.Fuzz(func(t *testing.T, form int, body []byte) {
		pinned, contentType, err := pinWrite(contentTypes[abs(form)%len(contentTypes)], body, judgedVersion)
		if err != nil {
			return
		}
		switch contentType {
		case string(types.JSONPatchType):
			var operations []struct{ Op, Path, Value string }
			if err := json.Unmarshal(firstOf(t, pinned), &operations); err != nil || len(operations) == 0 || operations[0].Op != "test" || operations[0].Value != judgedVersion {
				t.Errorf("%q became %q, which tests no version first", body, pinned)
			}
		case runtime.ContentTypeProtobuf:
			if version, err := versionInProto(raw(t, pinned)); err != nil || version != judgedVersion {
				t.Errorf("%q became %q, of the version %q, %v", body, pinned, version, err)
			}
		default:
			o, err := decode(pinned)
			if err == nil && o.Metadata.ResourceVersion != judgedVersion {
				t.Errorf("%q became %q, of the version %q", body, pinned, o.Metadata.ResourceVersion)
			}
		}
	})
}

// FuzzObject checks that reading any object, and what protects it, ends.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"metadata":{"labels":{"resourcetemplate.karmada.io/deletion-protected":"Always"}},"Metadata":{"labels":{}},"spec":{"replicas":"x"}}`))
	f.Add([]byte(`{"spec":{"replicas":0}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if o, err := decode(data); err == nil {
			_ = o.protectedByLabel()
			_ = o.scaledToZero()
			_ = o.glass()
		}
	})
}

// firstOf returns a list with the first of a list of operations only: the others may be anything.
func firstOf(t *testing.T, patch []byte) []byte {
	t.Helper()
	var operations []json.RawMessage
	if err := json.Unmarshal(patch, &operations); err != nil {
		t.Fatalf("%q is no patch: %v", patch, err)
	}
	return bytes.Join([][]byte{[]byte("["), operations[0], []byte("]")}, nil)
}

// raw returns the object in a message.
func raw(t *testing.T, message []byte) []byte {
	t.Helper()
	content, ok := bytes.CutPrefix(message, protobufMagic)
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(content); !ok || err != nil {
		t.Fatalf("%q is no message: %v", message, err)
	}
	return envelope.Raw
}

func abs(n int) int { return max(n, -(n + 1)) }
