package objbytes_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/objbytes"
)

var pin = objbytes.Pin{UID: "some-uid", ResourceVersion: "4711", PatchCheck: objbytes.TestVersion}

// patches are bodies of patches and options on which parsers may disagree.
var patches = []string{
	`[{"op":"remove","path":"/metadata/resourceVersion"}]`, `[{"op":"replace","path":"/spec/replicas","value":6}]`, `[null,7]`, "spec:\n  replicas: 6\n",
	"metadata:\n  name: a\nspec: {replicas: 6}\n", "metadata: {resourceVersion: 5}", `{"preconditions":{"uid":"x"}}`, `{"Preconditions":{"resourceVersion":"1"}}`,
	`{"preconditions":null,"preconditions":{}}`, `{"preconditions":{"resourceVersion":"1"}}`, `{"preconditions":{"resourceVersion":""}}`, "propagationPolicy: Background", "{}: {}",
}

var mediaTypes = []string{
	runtime.ContentTypeJSON, "application/yaml", objbytes.ProtobufMediaType, string(types.JSONPatchType), string(types.MergePatchType),
	string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType), "application/cbor",
}

func addBodies(f *testing.F) {
	for i := range mediaTypes {
		for _, body := range append(slices.Clone(hostileJSON), patches...) {
			f.Add(uint8(i), []byte(body))
		}
		for _, body := range hostileProtobuf(f) {
			f.Add(uint8(i), body)
		}
	}
}

// readJSON reads a body as API servers do.
func readJSON(mediaType string, body []byte, into any) bool {
	if mediaType == "application/yaml" || mediaType == string(types.ApplyYAMLPatchType) {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return false
		}
	}
	return utiljson.Unmarshal(body, into) == nil
}

// FuzzPinWrite checks that a pinned write is the same write for the pinned version only, and that whatever an API server could read is
// pinned, refused or has a version.
func FuzzPinWrite(f *testing.F) {
	addBodies(f)
	f.Fuzz(func(t *testing.T, form uint8, body []byte) {
		mediaType := mediaTypes[int(form)%len(mediaTypes)]
		pinned, err := pin.Write(mediaType, body)
		switch mediaType {
		case "application/cbor":
			if !errors.Is(err, objbytes.ErrMediaType) {
				t.Errorf("CBOR: %v", err)
			}
		case string(types.JSONPatchType):
			checkPatch(t, body, pinned, err)
		case objbytes.ProtobufMediaType:
			checkProtobuf(t, body, pinned, err)
		default:
			checkJSON(t, mediaType, body, pinned, err)
		}
	})
}

func checkPatch(t *testing.T, body, pinned []byte, err error) {
	t.Helper()
	var before, after []any
	if utiljson.Unmarshal(body, &before) != nil {
		if err == nil {
			t.Errorf("%q became %q", body, pinned)
		}
		return
	}
	if err != nil || utiljson.Unmarshal(pinned, &after) != nil || len(after) == 0 {
		t.Fatalf("%q became %q: %v", body, pinned, err)
	}
	test := map[string]any{"op": "test", "path": "/metadata/resourceVersion", "value": pin.ResourceVersion}
	if !reflect.DeepEqual(after[0], any(test)) || !slices.EqualFunc(after[1:], before, reflect.DeepEqual) {
		t.Errorf("%q became %q", body, pinned)
	}
}

func checkProtobuf(t *testing.T, body, pinned []byte, err error) {
	t.Helper()
	before, ok := decodeProtobuf(body)
	switch {
	case !ok || errors.Is(err, objbytes.ErrMalformed): // refused
	case errors.Is(err, objbytes.ErrHasVersion):
		if before.ResourceVersion == "" {
			t.Errorf("%q has no version", body)
		}
	case err != nil:
		t.Errorf("%q: %v", body, err)
	default:
		after, ok := decodeProtobuf(pinned)
		if !ok || before.ResourceVersion != "" || after.ResourceVersion != pin.ResourceVersion {
			t.Fatalf("%q became %q", body, pinned)
		}
		if after.ResourceVersion = ""; !equality.Semantic.DeepEqual(before, after) {
			t.Errorf("%q became another change, %q", body, pinned)
		}
	}
}

func checkJSON(t *testing.T, mediaType string, body, pinned []byte, err error) {
	t.Helper()
	read := func(body []byte) (object, metadata map[string]any, ok bool) {
		if !readJSON(mediaType, body, &object) || object == nil {
			return nil, nil, false
		}
		metadata, isObject := object["metadata"].(map[string]any)
		return object, metadata, isObject || object["metadata"] == nil
	}
	before, own, ok := read(body)
	if !ok {
		if err == nil {
			t.Errorf("%q became %q", body, pinned)
		}
		return
	}
	version, isString := own["resourceVersion"].(string)
	switch {
	case !isString && own["resourceVersion"] != nil:
		if !errors.Is(err, objbytes.ErrMalformed) {
			t.Errorf("%q: %v", body, err)
		}
		return
	case version != "":
		if !errors.Is(err, objbytes.ErrHasVersion) {
			t.Errorf("%q: %v", body, err)
		}
		return
	}
	after, metadata, ok := read(pinned)
	if err != nil || !ok || metadata["resourceVersion"] != pin.ResourceVersion {
		t.Fatalf("%q became %q: %v", body, pinned, err)
	}
	own, metadata, before, after = maps.Clone(own), maps.Clone(metadata), maps.Clone(before), maps.Clone(after)
	delete(own, "resourceVersion")
	delete(metadata, "resourceVersion")
	delete(before, "metadata")
	delete(after, "metadata")
	if len(own)+len(metadata) > 0 && !reflect.DeepEqual(own, metadata) || !reflect.DeepEqual(before, after) {
		t.Errorf("%q became another change, %q", body, pinned)
	}
}

// FuzzPinDelete checks that pinned options delete only the pinned version.
func FuzzPinDelete(f *testing.F) {
	addBodies(f)
	f.Fuzz(func(t *testing.T, form uint8, body []byte) {
		mediaType := mediaTypes[int(form)%len(mediaTypes)]
		pinned, err := pin.Delete(mediaType, body)
		if err != nil {
			return // refused, or with a version
		}
		var before, after metav1.DeleteOptions
		if mediaType == objbytes.ProtobufMediaType {
			var unknown runtime.Unknown
			if err := errors.Join(unknown.Unmarshal(pinned[len(objbytes.ProtobufPrefix):]), after.Unmarshal(unknown.Raw)); err != nil {
				t.Fatalf("%q became %q: %v", body, pinned, err)
			}
			var original runtime.Unknown
			if original.Unmarshal(body[len(objbytes.ProtobufPrefix):]) != nil || before.Unmarshal(original.Raw) != nil {
				return
			}
		} else if !readJSON(mediaType, body, &before) || !readJSON(mediaType, pinned, &after) {
			return // API servers refuse it
		}
		if p := after.Preconditions; p == nil || ptr.Deref(p.ResourceVersion, "") != pin.ResourceVersion || ptr.Deref(p.UID, "") == "" && before.Preconditions == nil {
			t.Errorf("%q became %q", body, pinned)
		}
		before.Preconditions, after.Preconditions = nil, nil
		if !equality.Semantic.DeepEqual(before, after) {
			t.Errorf("%q became other options, %q", body, pinned)
		}
	})
}

// FuzzPinEvict checks that a pinned eviction evicts only the pinned version, and is otherwise the same.
func FuzzPinEvict(f *testing.F) {
	addBodies(f)
	for _, body := range []string{
		`{"metadata":{"name":"x"}}`, `{"deleteOptions":{"gracePeriodSeconds":1}}`, `{"deleteOptions":null}`, `{"deleteOptions":{"preconditions":{"resourceVersion":"1"}}}`,
		`{"deleteOptions":{},"deleteOptions":{"preconditions":{"uid":"x"}}}`, `{"DeleteOptions":{"preconditions":{"resourceVersion":"1"}}}`, "deleteOptions: {preconditions: {uid: x}}",
	} {
		f.Add(uint8(0), []byte(body))
		f.Add(uint8(1), []byte(body))
	}
	f.Fuzz(func(t *testing.T, form uint8, body []byte) {
		mediaType := mediaTypes[int(form)%len(mediaTypes)]
		pinned, err := pin.Evict(mediaType, body)
		if err != nil {
			return // refused, or with a version
		}
		if mediaType == objbytes.ProtobufMediaType {
			checkProtobufEviction(t, body, pinned)
			return
		}
		var before, after map[string]any
		if !readJSON(mediaType, body, &before) || !readJSON(mediaType, pinned, &after) {
			return // API servers refuse it
		}
		was, _ := before["deleteOptions"].(map[string]any)
		options, _ := after["deleteOptions"].(map[string]any)
		preconditions, _ := options["preconditions"].(map[string]any)
		if preconditions["resourceVersion"] != pin.ResourceVersion {
			t.Fatalf("%q became %q", body, pinned)
		}
		for _, m := range []map[string]any{was, options} {
			delete(m, "preconditions")
		}
		delete(before, "deleteOptions")
		delete(after, "deleteOptions")
		if len(was)+len(options) > 0 && !reflect.DeepEqual(was, options) || len(before)+len(after) > 0 && !reflect.DeepEqual(before, after) {
			t.Errorf("%q became another eviction, %q", body, pinned)
		}
	})
}

func checkProtobufEviction(t *testing.T, body, pinned []byte) {
	t.Helper()
	var before, after policyv1.Eviction
	var unknown, original runtime.Unknown
	if err := errors.Join(unknown.Unmarshal(pinned[len(objbytes.ProtobufPrefix):]), after.Unmarshal(unknown.Raw)); err != nil {
		t.Fatalf("%q became %q: %v", body, pinned, err)
	}
	if original.Unmarshal(body[len(objbytes.ProtobufPrefix):]) != nil || before.Unmarshal(original.Raw) != nil {
		return
	}
	if after.DeleteOptions == nil || after.DeleteOptions.Preconditions == nil || ptr.Deref(after.DeleteOptions.Preconditions.ResourceVersion, "") != pin.ResourceVersion {
		t.Fatalf("%q became %q", body, pinned)
	}
	if before.DeleteOptions == nil {
		before.DeleteOptions = &metav1.DeleteOptions{}
	}
	before.DeleteOptions.Preconditions, after.DeleteOptions.Preconditions = nil, nil
	if !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("%q became another eviction, %q", body, pinned)
	}
}

// TestPinnedPreconditions checks how a pin and the preconditions of a client meet.
func TestPinnedPreconditions(t *testing.T) {
	for name, test := range map[string]struct {
		given *metav1.Preconditions
		uid   types.UID
		err   error
	}{
		"none":              {nil, "some-uid", nil},
		"its UID stays":     {&metav1.Preconditions{UID: ptr.To(types.UID("other"))}, "other", nil},
		"the same version":  {&metav1.Preconditions{ResourceVersion: ptr.To("4711")}, "some-uid", nil},
		"no version":        {&metav1.Preconditions{ResourceVersion: ptr.To("")}, "some-uid", nil},
		"another version":   {&metav1.Preconditions{ResourceVersion: ptr.To("4712")}, "", objbytes.ErrHasVersion},
		"a version and UID": {&metav1.Preconditions{UID: ptr.To(types.UID("other")), ResourceVersion: ptr.To("4711")}, "other", nil},
	} {
		got, err := pin.Preconditions(test.given)
		if !errors.Is(err, test.err) || err == nil && (*got.UID != test.uid || *got.ResourceVersion != "4711") {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	replacing := objbytes.Pin{ResourceVersion: "4711", Replace: true}
	if got, err := replacing.Preconditions(&metav1.Preconditions{ResourceVersion: ptr.To("1")}); err != nil || *got.ResourceVersion != "4711" || got.UID != nil {
		t.Errorf("a pin that replaces: got %v, %v", got, err)
	}
}

func TestPinnedPatchCanConflict(t *testing.T) {
	setting := objbytes.Pin{ResourceVersion: "7", PatchCheck: objbytes.SetVersion}
	pinned, err := setting.Write(string(types.JSONPatchType), []byte(`[{"op":"remove","path":"/x"}]`))
	var operations []map[string]string
	if err != nil || json.Unmarshal(pinned, &operations) != nil || len(operations) != 3 || operations[0]["op"] != "add" || operations[0]["value"] != "7" ||
		operations[2]["op"] != "test" || operations[2]["value"] != "7" {
		t.Errorf("got %s, %v", pinned, err)
	}
}
