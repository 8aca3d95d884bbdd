package router

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/splice"
)

// FuzzPin checks that a change of any form names a version afterwards, its own or the one it is pinned to, and is the same change else.
func FuzzPin(f *testing.F) {
	for _, body := range []string{"", "{}", "null", "[]", `{"metadata":null}`, `{"metadata":{"resourceVersion":null}}`, `{"metadata":{"resourceVersion":"5"},"metadata":{}}`,
		`{"Metadata":{"resourceVersion":"1"},"spec":{"replicas":3}}`, `[{"op":"remove","path":"/metadata/resourceVersion"}]`, "metadata:\n  name: a\nspec: {replicas: 6}\n", "k8s\x00\x12\x04\x0a\x02\x32\x00"} {
		for form := range uint8(4) {
			f.Add(form, []byte(body))
		}
	}
	f.Add(uint8(3), protoObject(map[string]string{"a": "b"}))
	f.Fuzz(func(t *testing.T, form uint8, body []byte) {
		mediaType := []string{"application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json", splice.ProtobufContentType}[form%4]
		pinned, err := pin(mediaType, body, "7")
		if err != nil {
			t.Fatalf("%q cannot be pinned: %v", body, err)
		}
		switch mediaType {
		case "application/json-patch+json":
			checkPinnedPatch(t, body, pinned)
		case splice.ProtobufContentType:
			checkPinnedProto(t, body, pinned)
		default:
			checkPinnedObject(t, mediaType, body, pinned)
		}
	})
}

func checkPinnedObject(t *testing.T, mediaType string, body, pinned []byte) {
	t.Helper()
	read := func(data []byte) (object map[string]any, metadata map[string]any, ok bool) {
		if mediaType == "application/apply-patch+yaml" {
			var err error
			if data, err = yaml.YAMLToJSON(data); err != nil {
				return nil, nil, false
			}
		}
		if utiljson.Unmarshal(data, &object) != nil || object == nil {
			return nil, nil, false
		}
		metadata, isObject := object["metadata"].(map[string]any)
		return object, metadata, isObject || object["metadata"] == nil
	}
	before, own, ok := read(body)
	if !ok {
		return // the API server cannot read it either
	}
	after, metadata, ok := read(pinned)
	if !ok {
		t.Fatalf("%q became %q", body, pinned)
	}
	want := own["resourceVersion"]
	if want == nil || want == "" {
		want = "7"
	}
	if !reflect.DeepEqual(metadata["resourceVersion"], want) {
		t.Errorf("%q became %q, of the version %v", body, pinned, metadata["resourceVersion"])
	}
	own, metadata = maps.Clone(own), maps.Clone(metadata)
	delete(own, "resourceVersion")
	delete(metadata, "resourceVersion")
	before, after = maps.Clone(before), maps.Clone(after)
	delete(before, "metadata")
	delete(after, "metadata")
	if len(own)+len(metadata) > 0 && !reflect.DeepEqual(own, metadata) || !reflect.DeepEqual(before, after) {
		t.Errorf("%q became another change, %q", body, pinned)
	}
}

func checkPinnedPatch(t *testing.T, body, pinned []byte) {
	t.Helper()
	var before, after []any
	if utiljson.Unmarshal(body, &before) != nil {
		return
	}
	first := map[string]any{"op": "add", "path": "/metadata/resourceVersion", "value": "7"}
	if err := json.Unmarshal(pinned, &after); err != nil || len(after) != len(before)+1 || !reflect.DeepEqual(after[0], any(first)) {
		t.Fatalf("%q became %q, which names no version first: %v", body, pinned, err)
	}
	if err := utiljson.Unmarshal(pinned, &after); err != nil || !slices.EqualFunc(after[1:], before, reflect.DeepEqual) {
		t.Errorf("%q became another change, %q: %v", body, pinned, err)
	}
}

func checkPinnedProto(t *testing.T, body, pinned []byte) {
	t.Helper()
	before, ok := metadataInProto(body)
	if !ok || before.Name == "" { // an object without a name cannot be written to
		return
	}
	after, ok := metadataInProto(pinned)
	if !ok || after.ResourceVersion != "7" && (after.ResourceVersion == "" || after.ResourceVersion != before.ResourceVersion) {
		t.Fatalf("%q became %q, of the version %q", body, pinned, after.ResourceVersion)
	}
	after.ResourceVersion, before.ResourceVersion = "", ""
	if !reflect.DeepEqual(after, before) {
		t.Errorf("%q became another change, %q", body, pinned)
	}
}

// metadataInProto reads the metadata of an object as API servers do.
func metadataInProto(body []byte) (metav1.ObjectMeta, bool) {
	content, ok := bytes.CutPrefix(body, protobufMagic)
	var envelope runtime.Unknown
	var object metav1.PartialObjectMetadata
	if !ok || envelope.Unmarshal(content) != nil || object.Unmarshal(envelope.Raw) != nil {
		return metav1.ObjectMeta{}, false
	}
	return object.ObjectMeta, true
}
