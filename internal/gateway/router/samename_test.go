package router

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/objbytes"
	"github.com/cellplane/cellplane/internal/splice"
)

// bytesField returns a field of a message.
func bytesField(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// named returns an object with a name in protobuf, without the envelope.
func named(number protowire.Number, name string) []byte {
	return bytesField(objbytes.ObjectMetadata, bytesField(number, []byte(name)))
}

// TestOneName reads bodies in which a parser might find another name than an API server does.
func TestOneName(t *testing.T) {
	message := func(parts ...[]byte) string { return objbytes.ProtobufPrefix + string(bytes.Join(parts, nil)) }
	// A field number that becomes 1 when truncated to 32 bits.
	long := protowire.AppendVarint(nil, (1<<32+uint64(objbytes.MetaName))<<3|uint64(protowire.BytesType))
	for name, test := range map[string]struct {
		mediaType, body string
		want            identity
		refused         bool
	}{
		"plain":                      {"application/json", `{"metadata":{"name":"a"}}`, identity{name: "a"}, false},
		"another case":               {"application/json", `{"metadata":{"name":"a","Name":"b","NAME":"c"}}`, identity{name: "a"}, false},
		"metadata in another case":   {"application/json", `{"metadata":{"name":"a"},"Metadata":{"name":"b"}}`, identity{name: "a"}, false},
		"only in another case":       {"application/json", `{"Metadata":{"name":"b"},"metadata":{"generateName":"a-"}}`, identity{generateName: "a-"}, false},
		"another case in YAML":       {"application/yaml", "metadata: {name: a, Name: b}", identity{name: "a"}, false},
		"a name twice":               {"application/json", `{"metadata":{"name":"a","name":"b"}}`, identity{}, true},
		"a name twice, once escaped": {"application/json", `{"metadata":{"name":"a","n\u0061me":"b"}}`, identity{}, true},
		"metadata twice":             {"application/json", `{"metadata":{"name":"a"},"metadata":{"generateName":"b-"}}`, identity{}, true},
		"a label twice":              {"application/json", `{"metadata":{"name":"a","labels":{"x":"1","x":"2"}}}`, identity{}, true},
		"other field twice":          {"application/json", `{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}`, identity{name: "a"}, false},
		"protobuf":                   {splice.ProtobufContentType, message(bytesField(objbytes.UnknownRaw, named(objbytes.MetaName, "a"))), identity{name: "a"}, false},
		"two objects in protobuf":    {splice.ProtobufContentType, message(bytesField(objbytes.UnknownRaw, named(objbytes.MetaName, "b")), bytesField(objbytes.UnknownRaw, named(objbytes.MetaGenerateName, "a-"))), identity{generateName: "a-"}, false},
		"metadata twice in protobuf": {splice.ProtobufContentType, message(bytesField(objbytes.UnknownRaw, append(named(objbytes.MetaName, "a"), named(objbytes.MetaGenerateName, "b-")...))), identity{name: "a", generateName: "b-"}, false},
		"field number too large":     {splice.ProtobufContentType, message(bytesField(objbytes.UnknownRaw, bytesField(objbytes.ObjectMetadata, bytes.Join([][]byte{bytesField(objbytes.MetaName, []byte("a")), long, {1, 'b'}}, nil)))), identity{}, true},
		"truncated message":          {splice.ProtobufContentType, message(bytesField(objbytes.UnknownRaw, named(objbytes.MetaName, "a")), []byte{0x12, 0x7f}), identity{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readIdentity(test.mediaType, []byte(test.body))
			if got != test.want || (err != nil) != test.refused {
				t.Errorf("%q is %+v, %v", test.body, got, err)
			}
		})
	}
}

// FuzzSameName looks for bodies in which an API server finds another name than the gateway, for built-in and custom kinds.
func FuzzSameName(f *testing.F) {
	f.Add(uint8(0), []byte(`{"metadata":{"name":"a","Name":"b"},"Metadata":{"name":"c"}}`))
	f.Add(uint8(0), []byte(`{"metadata":{"name":"a"},"metadata":{"generateName":"b"}}`))
	f.Add(uint8(1), []byte("metadata: {generateName: a, labels: {x: y}}\n"))
	f.Add(uint8(2), append([]byte(objbytes.ProtobufPrefix), bytesField(objbytes.UnknownRaw, named(objbytes.MetaName, "a"))...))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		mediaType := []string{"application/json", "application/yaml", splice.ProtobufContentType}[kind%3]
		got, err := readIdentity(mediaType, body)
		if err != nil {
			return
		}
		for _, read := range readings(mediaType, body) {
			if read.name != got.name || read.generateName != got.generateName {
				t.Errorf("%q is %+v, an API server reads %+v", body, got, read)
			}
		}
	})
}

// readings returns the names that API servers read. They need a name or a generateName to create an object.
func readings(mediaType string, body []byte) (found []identity) {
	var object corev1.ConfigMap
	if mediaType == splice.ProtobufContentType {
		content, ok := bytes.CutPrefix(body, []byte(objbytes.ProtobufPrefix))
		var envelope runtime.Unknown
		if !ok || envelope.Unmarshal(content) != nil || object.Unmarshal(envelope.Raw) != nil || object.Name+object.GenerateName == "" {
			return nil
		}
		return []identity{{name: object.Name, generateName: object.GenerateName}}
	}
	if mediaType == "application/yaml" {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil
		}
	}
	if utiljson.Unmarshal(body, &object) == nil && object.Name+object.GenerateName != "" {
		found = append(found, identity{name: object.Name, generateName: object.GenerateName})
	}
	custom := unstructured.Unstructured{}
	if utiljson.Unmarshal(body, &custom.Object) == nil && custom.Object != nil && custom.GetName()+custom.GetGenerateName() != "" && stringLabels(custom.Object) {
		found = append(found, identity{name: custom.GetName(), generateName: custom.GetGenerateName()})
	}
	return found
}

// stringLabels reports whether metadata has the types that API servers require of custom objects too.
func stringLabels(object map[string]any) bool {
	_, _, err := unstructured.NestedStringMap(object, "metadata", "labels")
	if labels, found, _ := unstructured.NestedFieldNoCopy(object, "metadata", "labels"); found && labels == nil {
		err = nil
	}
	for _, field := range []string{"name", "generateName"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(object, "metadata", field); found && value != nil {
			if _, isString := value.(string); !isString {
				return false
			}
		}
	}
	return err == nil
}

// TestForeignMetadata reads objects with a field named Metadata, which custom kinds may have.
func TestForeignMetadata(t *testing.T) {
	const disguised = `{"metadata":{"uid":"a"},"Metadata":{"uid":"b","labels":{"cellplane.io/rebalance-status":"migrated"}}}`
	if left := withoutCopies([][]byte{[]byte(disguised), []byte(`{"metadata":{"uid":"b"}}`), []byte(`{"metadata":{"uid":"b"}}`)}); len(left) != 2 {
		t.Errorf("got %q from two objects and a copy, want two objects", left)
	}
	if status := statusIn("application/json", []byte(disguised)); status != "" {
		t.Errorf("status %q of an object that does not move", status)
	}
}
