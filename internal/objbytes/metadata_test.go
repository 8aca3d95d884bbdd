package objbytes_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// hostileJSON are objects on which parsers may disagree.
var hostileJSON = []string{
	``, `null`, `[]`, `{}`, `{"metadata":null}`, `{"metadata":[]}`, `{"metadata":{"name":7}}`, `{"metadata":{"name":null,"resourceVersion":null,"labels":null}}`,
	`{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"5","labels":{"x":"y"},"annotations":{"z":""}},"spec":{"metadata":{"name":"d"}}}`,
	`{"metadata":{"name":"a","name":"b"}}`, `{"metadata":{"name":"a","n\u0061me":"b"}}`, `{"metadata":{"name":"a"},"metadata":{"name":"b"}}`,
	`{"metadata":{"resourceVersion":"5"},"metadata":{}}`, `{"Metadata":{"resourceVersion":"1"},"metadata":{"Name":"b","name":"a"}}`,
	`{"metadata":{"labels":{"a":"1","a":"2"},"annotations":{"a":null}}}`, `{"metadata":{"labels":{"a":1}}}`, `{"metadata":{"labels":{"a":"1"},"labels":{"b":"2"}}}`,
	`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z","creationTimestamp":null}}`, `{"metadata":{"deletionTimestamp":null}}`,
	"{\"metadata\":{\"name\":\"a\xff\",\"labels\":{\"\xc3\":\"\xed\xa0\x80\"}}}", `{"metadata":{"name":"\ud800","uid":"\u0000"}}`, "{\"metadata\":{\"name\":\"a\nb\"}}",
	`{"metadata":{"name":"a"}`, `{"metadata":{"name":"a"}}}`, `{"metadata":{"name":"a"},"spec":` + strings.Repeat(`{"a":[`, 5001) + strings.Repeat(`]}`, 5001) + `}`,
	` { "metadata" : { "name" : "a" , "resourceVersion" : "" } } `, `{"metadata":{"ownerReferences":[{"uid":"u","controller":true}],"finalizers":["f"]}}`,
}

func message(parts ...[]byte) []byte { return slices.Concat(parts...) }

func field(number protowire.Number, content ...[]byte) []byte {
	return objbytes.AppendBytes(nil, number, slices.Concat(content...))
}

func envelope(raw ...[]byte) []byte {
	return message([]byte(objbytes.ProtobufPrefix), field(objbytes.UnknownRaw, raw...))
}

// hostileProtobuf are objects on which parsers may disagree.
func hostileProtobuf(t testing.TB) [][]byte {
	t.Helper()
	whole := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "a", GenerateName: "g", Namespace: "b", UID: "c", ResourceVersion: "5", CreationTimestamp: metav1.Unix(1600000000, 0), DeletionTimestamp: ptr.To(metav1.Unix(1600000001, 0)),
		Labels: map[string]string{"x": "y"}, Annotations: map[string]string{"z": ""}, Finalizers: []string{"f"},
		OwnerReferences: []metav1.OwnerReference{{UID: "no"}, {UID: "yes", Controller: ptr.To(true)}},
	}, Data: map[string]string{"k": "v"}}
	raw, err := whole.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	name := func(name string) []byte { return field(objbytes.MetaName, []byte(name)) }
	// The field number is 1 if it is cut to 32 bits.
	long := protowire.AppendVarint(nil, (1<<32+1)<<3|uint64(protowire.BytesType))
	overlong := []byte{0x8a, 0x80, 0x00, 0x81, 0x00, 'o'} // the name "o" with a tag and a length of more bytes than needed
	return [][]byte{
		nil, []byte(objbytes.ProtobufPrefix), []byte("k8s\x00\xff\xff"), []byte("k8s"), envelope(), envelope(raw), envelope(raw)[:40],
		envelope(field(1, name("a")), field(1, name("b"), field(objbytes.MetaVersion, []byte("7")))),
		message(envelope(field(1, name("a"))), field(objbytes.UnknownRaw, field(1, name("b")))),
		envelope(field(1, name("a"), name("b"), field(objbytes.MetaVersion))), envelope(field(1, overlong)), envelope(field(1, long, []byte{1, 'b'})),
		envelope([]byte{1 << 3, 7}), envelope(field(1, name("a")), []byte{9<<3 | 3, 9<<3 | 4}), envelope(field(1, name("a")), []byte{0, 0}),
		envelope(field(1, []byte{1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})),
		envelope(field(1, field(objbytes.MetaLabels), field(objbytes.MetaLabels, field(1, []byte("k")), field(1, []byte("l")), field(2, []byte("\xff"))))),
		envelope(field(1, field(objbytes.MetaLabels, field(1, []byte("k")), field(2, []byte("1"))), field(objbytes.MetaLabels, field(1, []byte("k")), field(2, []byte("2"))))),
		message(envelope(field(1, name("a"))), field(objbytes.UnknownContentEncoding, []byte("gzip"))),
		envelope(field(1, name("a"), field(objbytes.MetaOwnerReferences, field(objbytes.OwnerUID, []byte("u")), []byte{byte(objbytes.OwnerController) << 3, 1}),
			field(objbytes.MetaOwnerReferences, field(objbytes.OwnerUID, []byte("v")), []byte{byte(objbytes.OwnerController) << 3, 1}))),
	}
}

// check compares metadata with what a decoder has read.
func check(t *testing.T, input []byte, got *objbytes.Metadata, want metav1.Object) {
	t.Helper()
	for _, field := range []struct{ name, got, want string }{
		{"name", string(got.Name), want.GetName()}, {"generateName", string(got.GenerateName), want.GetGenerateName()}, {"namespace", string(got.Namespace), want.GetNamespace()},
		{"uid", string(got.UID), string(want.GetUID())}, {"resourceVersion", string(got.ResourceVersion), want.GetResourceVersion()},
	} {
		if field.got != field.want {
			t.Errorf("%q: %s is %q, a decoder reads %q", input, field.name, field.got, field.want)
		}
	}
	if deleting := want.GetDeletionTimestamp() != nil; got.Deleting != deleting {
		t.Errorf("%q: deleting is %t, for a decoder %t", input, got.Deleting, deleting)
	}
	for name, pair := range map[string]struct {
		got  objbytes.Map
		want map[string]string
	}{"labels": {got.Labels, want.GetLabels()}, "annotations": {got.Annotations, want.GetAnnotations()}} {
		read, err := pair.got.Strings()
		if err != nil || !maps.Equal(read, pair.want) {
			t.Errorf("%q: %s are %q, %v; a decoder reads %q", input, name, read, err, pair.want)
		}
	}
}

// FuzzReadJSON checks that metadata in JSON is read as the decoders of API servers read it, of built-in and of custom kinds.
func FuzzReadJSON(f *testing.F) {
	for _, seed := range hostileJSON {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		at, err := objbytes.JSONMetadata(object)
		if err != nil {
			return
		}
		var got objbytes.Metadata
		if got.ReadJSON(object, at) != nil {
			return
		}
		if got.VersionAt != (objbytes.Span{}) {
			if version, err := objbytes.String(got.VersionAt.Of(object)); err == nil && string(version) != string(got.ResourceVersion) {
				t.Errorf("%q: the version at %v is %q", object, got.VersionAt, version)
			}
		}
		var typed metav1.PartialObjectMetadata
		if utiljson.Unmarshal(object, &typed) != nil {
			return // API servers refuse it
		}
		check(t, object, &got, &typed)
		custom := &unstructured.Unstructured{}
		if utiljson.Unmarshal(object, &custom.Object) == nil && stringMaps(custom.Object) {
			check(t, object, &got, custom)
		}
	})
}

// stringMaps reports whether labels and annotations are maps of strings, which unstructured objects do not ensure.
func stringMaps(object map[string]any) bool {
	for _, name := range []string{"labels", "annotations"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(object, "metadata", name); found && value != nil {
			if _, _, err := unstructured.NestedStringMap(object, "metadata", name); err != nil {
				return false
			}
		}
	}
	return true
}

// decodeProtobuf reads an object as API servers do.
func decodeProtobuf(body []byte) (object corev1.ConfigMap, ok bool) {
	content, ok := strings.CutPrefix(string(body), objbytes.ProtobufPrefix)
	var unknown runtime.Unknown
	return object, ok && unknown.Unmarshal([]byte(content)) == nil && object.Unmarshal(unknown.Raw) == nil
}

// FuzzReadProtobuf checks that metadata in protobuf is read as the decoders of API servers read it.
func FuzzReadProtobuf(f *testing.F) {
	for _, seed := range hostileProtobuf(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, err := objbytes.OpenEnvelope(body)
		if err != nil {
			return
		}
		raw := envelope.Raw.Of(body)
		var got objbytes.Metadata
		if got.MergeProtobuf(raw) != nil {
			return
		}
		want, ok := decodeProtobuf(body)
		if !ok {
			return // API servers refuse it
		}
		check(t, body, &got, &want)
		controller, err := got.Controller()
		if owner := metav1.GetControllerOf(&want); err != nil || owner != nil && string(owner.UID) != string(controller) || owner == nil && controller != nil {
			t.Errorf("%q: the controller is %q, %v; a decoder reads %v", body, controller, err, owner)
		}
		// The time's nanoseconds are not read; hostile ones are up to two seconds.
		created, err := got.Created()
		if difference := want.CreationTimestamp.Sub(time.Unix(created, 0)); err != nil || created != 0 && difference.Abs() > 3*time.Second {
			t.Errorf("%q: created at %d, %v; a decoder reads %v", body, created, err, want.CreationTimestamp)
		}
		// Metadata that occurs once is read alike by those who refuse it twice.
		if metadata, err := objbytes.ProtobufMetadata(raw); err == nil {
			got.Reset()
			if err := got.ReadProtobuf(metadata.Value); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			check(t, body, &got, &want)
		}
	})
}
