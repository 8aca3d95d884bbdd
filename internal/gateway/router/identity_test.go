package router

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// encode encodes an object as clients do.
func encode(t *rapid.T, mediaType string, object runtime.Object) []byte {
	var serializer runtime.Encoder
	switch mediaType {
	case splice.ProtobufContentType:
		serializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	default:
		serializer = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: mediaType == "application/yaml"})
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(serializer, corev1.SchemeGroupVersion), object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestIdentityOfBodies reads and sets names in bodies of every encoding.
func TestIdentityOfBodies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mediaType := rapid.SampledFrom([]string{"application/json", "application/yaml", splice.ProtobufContentType}).Draw(t, "media type")
		word := rapid.StringMatching(`[a-z0-9-]{0,12}`)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: word.Draw(t, "name"), GenerateName: word.Draw(t, "generateName"), Namespace: word.Draw(t, "namespace"),
			Labels: map[string]string{slots.HintLabel: word.Draw(t, "slot"), "other": word.Draw(t, "label")},
		}, Data: map[string]string{"name": word.Draw(t, "data")}}
		body := encode(t, mediaType, object)
		got, err := readIdentity(mediaType, body)
		if err != nil {
			t.Fatal(err)
		}
		if want := (identity{object.Name, object.GenerateName, object.Labels[slots.HintLabel]}); got != want {
			t.Fatalf("read %+v, want %+v", got, want)
		}
		named, err := setName(mediaType, body, "chosen")
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), named)
		if err != nil {
			t.Fatalf("%v: %s", err, named)
		}
		result, ok := decoded.(*corev1.ConfigMap)
		if !ok || result.Name != "chosen" || result.GenerateName != object.GenerateName || result.Data["name"] != object.Data["name"] || result.Namespace != object.Namespace {
			t.Fatalf("got %+v", decoded)
		}
	})
}

// FuzzIdentity checks that no body causes a panic, and that a name that was set can be read.
func FuzzIdentity(f *testing.F) {
	f.Add(uint8(0), []byte(`{"metadata":{"name":"a","generateName":"b","labels":{"cellplane.io/slot":"7"}}}`))
	f.Add(uint8(1), []byte("metadata:\n  name: a\n"))
	f.Add(uint8(2), []byte("k8s\x00\x12\x05\x0a\x03\x0a\x01a"))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		mediaType := []string{"application/json", "application/yaml", splice.ProtobufContentType, "application/cbor"}[kind%4]
		id, err := readIdentity(mediaType, body)
		if err != nil || id == (identity{}) {
			return
		}
		named, err := setName(mediaType, body, "chosen")
		if err != nil {
			return
		}
		again, err := readIdentity(mediaType, named)
		if err != nil || again.name != "chosen" || again.generateName != id.generateName {
			t.Errorf("%+v became %+v: %v", id, again, err)
		}
	})
}

// TestMayHoldVersion compares the fast check with a simple one.
func TestMayHoldVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(rapid.StringMatching(`[a-z"{}: ]{0,50}[0-9]{0,45}[a-z"{}: ]{0,50}[0-9]{0,45}[a-z]{0,20}`).Draw(t, "body"))
		want, run := false, 0
		for _, b := range body {
			if run++; !isDigit(b) {
				run = 0
			}
			want = want || run >= fewestDigits
		}
		if got := mayHoldVersion(body); got != want {
			t.Fatalf("%q: got %v", body, got)
		}
	})
}
