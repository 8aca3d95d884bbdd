package splice

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// stamped is the version of a revision in these tests.
func stamped(revision string) string {
	return "4003" + strings.Repeat("0", 12-len(revision)) + revision
}

// TestStamp compares Stamp with decoding the object, changing its version and encoding it.
func TestStamp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := deployment(t, "a", "x", 1)
		before.TypeMeta = metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}
		before.ResourceVersion = strconv.Itoa(rapid.IntRange(0, 1e9).Draw(t, "revision"))
		after := before
		after.ResourceVersion = stamped(before.ResourceVersion)
		if before.ResourceVersion == "0" {
			before.ResourceVersion, after.ResourceVersion = "", ""
		}
		for mediaType, encode := range map[string]func(*appsv1.Deployment) []byte{
			"application/json":  func(d *appsv1.Deployment) []byte { return encodeWith(jsonSerializer, d) },
			ProtobufContentType: func(d *appsv1.Deployment) []byte { return encodeWith(protoSerializer, d) },
			"application/yaml": func(d *appsv1.Deployment) []byte {
				converted, err := yaml.JSONToYAML(encodeWith(jsonSerializer, d))
				if err != nil {
					t.Fatal(err)
				}
				return converted
			},
		} {
			got, err := Stamp(mediaType, encode(&before), stamped)
			if err != nil || !bytes.Equal(got, encode(&after)) {
				t.Fatalf("%s: got %v\n%q\nwant\n%q", mediaType, err, got, encode(&after))
			}
		}
	})
}

func TestStampOthers(t *testing.T) {
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success", Details: &metav1.StatusDetails{Name: "x"}}
	for _, test := range []struct{ name, mediaType, body, want string }{
		{"a Status", "application/json", string(encodeWith(jsonSerializer, status)), ""},
		{"a Status in protobuf", ProtobufContentType, string(encodeWith(protoSerializer, status)), ""},
		{"another media type", "application/cbor", "x", ""},
		{"indented", "application/json", "\n{\n \"kind\": \"X\",\n \"metadata\": {\n  \"resourceVersion\": \"7\"\n }\n}\n", "\n{\n \"kind\": \"X\",\n \"metadata\": {\n  \"resourceVersion\": \"V\"\n }\n}\n"},
		{"no kind", "application/json", `{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"resourceVersion":"7"}}`, `{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"resourceVersion":"V"}}`},
		{"a Table", "application/json", `{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[{"cells":["x"],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"x","resourceVersion":"7"}}}]}`,
			`{"kind":"Table","metadata":{"resourceVersion":"V"},"rows":[{"cells":["x"],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"x","resourceVersion":"V"}}}]}`},
		{"a Table without objects", "application/json", `{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[{"cells":["x"],"object":null}]}`, `{"kind":"Table","metadata":{"resourceVersion":"V"},"rows":[{"cells":["x"],"object":null}]}`},
		{"a Table without rows", "application/json", `{"kind":"Table","metadata":{},"rows":null}`, ""},
	} {
		if test.want == "" {
			test.want = test.body
		}
		got, err := Stamp(test.mediaType, []byte(test.body), func(revision string) string {
			if revision != "7" {
				t.Errorf("%s: asked for revision %q", test.name, revision)
			}
			return "V"
		})
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got %q, %v\nwant %q", test.name, got, err, test.want)
		}
	}
	for _, broken := range []string{"", "x", "{", `{"metadata":{"resourceVersion":"7"`} {
		if got, err := Stamp("application/json", []byte(broken), stamped); err == nil {
			t.Errorf("%q became %q", broken, got)
		}
	}
}

// TestStampedLists compares merged lists with versions to merged lists without, whose objects are changed afterwards.
func TestStampedLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := cells(t)
		limit := rapid.SampledFrom([]int{0, 0, 1, 3, 100}).Draw(t, "limit")
		most := rapid.SampledFrom([]int{0, 1, 500, 2000}).Draw(t, "most")
		for _, codec := range listCodecs {
			if codec.name == "table" && limit == 0 {
				continue // as with a limit
			}
			answers := make([][]byte, len(all))
			for i := range all {
				answers[i] = page(codec, i, all[i], "", limit)
			}
			options := ListOptions{Limit: limit, Choose: choose, Finish: func(Page) (Metadata, error) { return Metadata{ResourceVersion: "9", Remaining: -1}, nil }}
			merged := func(options ListOptions) deployments {
				var out bytes.Buffer
				if _, err := codec.merge(&out, answers, options); err != nil {
					t.Fatalf("%s: %v", codec.name, err)
				}
				_, items, err := codec.decode(out.Bytes())
				if err != nil {
					t.Fatalf("%s: %v", codec.name, err)
				}
				return items
			}
			want := merged(options)
			for i := range want {
				want[i].ResourceVersion = stamped(want[i].ResourceVersion)
			}
			options.MaxPage = most
			if limit > 0 {
				options.MaxPage = 0
			}
			options.Version = func(item *Item, revision string) string {
				if object, err := item.Object(); err != nil || object.ResourceVersion != revision {
					t.Fatalf("%s: revision %q of %+v, %v", codec.name, revision, object, err)
				}
				return stamped(revision)
			}
			if got := merged(options); !apiequality.Semantic.DeepEqual(got, want) {
				t.Fatalf("%s: got %d objects, want %d", codec.name, len(got), len(want))
			}
		}
	})
}

// TestPadding checks that a padding of every size can be written.
func TestPadding(t *testing.T) {
	for _, size := range []int{4, 5, 128, 129, 130, 131, 132, 16385, 16386, 16387, 16388, 16389, 1 << 21} {
		var out bytes.Buffer
		w := newProtoWriter(&out)
		if err := w.pad(size); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil || out.Len() != size {
			t.Errorf("a padding of %d bytes has %d, %v", size, out.Len(), err)
		}
	}
}

// TestNewBookmark makes bookmarks from events, which the decoders of clients must accept.
func TestNewBookmark(t *testing.T) {
	object := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: "7"},
	}
	for _, encoding := range []Encoding{JSON, Protobuf} {
		raw := []byte(`{"type":"ADDED","object":` + string(encodeWith(jsonSerializer, object)) + `}`)
		if encoding == Protobuf {
			raw = encodeWith(rawSerializer, &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: encodeWith(protoSerializer, object)}})
		}
		event, err := ParseEvent(raw, encoding)
		if err != nil {
			t.Fatal(err)
		}
		bookmark := event.NewBookmark()
		if bookmark == nil || bookmark.Type != Bookmark || bookmark.InitialEventsEnd || bookmark.Object.Name != "" {
			t.Fatalf("encoding %d: got %+v", encoding, bookmark)
		}
		sent := bookmark.Append(nil, "12345")
		var decoded metav1.WatchEvent
		var decoder runtime.Decoder = jsonSerializer
		if encoding == JSON {
			err = json.Unmarshal(sent, &decoded)
		} else {
			_, _, err = rawSerializer.Decode(sent[4:], nil, &decoded)
			decoder = protoSerializer
		}
		if err != nil || decoded.Type != "BOOKMARK" {
			t.Fatalf("encoding %d: %v, %v", encoding, decoded.Type, err)
		}
		got, _, err := decoder.Decode(decoded.Object.Raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := &appsv1.Deployment{TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "12345"}}
		if encoding == Protobuf {
			want.TypeMeta = metav1.TypeMeta{}
			got.(*appsv1.Deployment).TypeMeta = metav1.TypeMeta{}
		}
		if !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("encoding %d: got %+v", encoding, got)
		}
	}
	table, err := ParseEvent([]byte(`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"rows":[]}}`), JSON)
	if err != nil || table.NewBookmark() != nil {
		t.Errorf("a bookmark was made for a Table: %v", err)
	}
}
