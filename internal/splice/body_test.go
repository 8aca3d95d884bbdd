package splice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// In these tests a merged version begins with "1000", and is translated to the rest.
func translate(version string) (string, error) {
	if version == "1000-unknown" {
		return "", errUnknown
	}
	if plain, merged := strings.CutPrefix(version, "1000"); merged {
		return plain, nil
	}
	return version, nil
}

var errUnknown = errors.New("unknown position")

func TestRewriteBodies(t *testing.T) {
	const (
		patchJSON = "application/json-patch+json"
		apply     = "application/apply-patch+yaml"
	)
	for _, test := range []struct {
		name, contentType string
		body              Body
		before, after     string // after "" means as before
	}{
		{"update", "application/json", ObjectBody, `{"metadata":{"name":"x","resourceVersion":"100042"},"spec":{}}`, `{"metadata":{"name":"x","resourceVersion":"42"},"spec":{}}`},
		{"with a charset", "application/json; charset=utf-8", ObjectBody, `{"metadata":{"resourceVersion":"100042"}}`, `{"metadata":{"resourceVersion":"42"}}`},
		{"without a content type", "", ObjectBody, `{"metadata":{"resourceVersion":"100042"}}`, `{"metadata":{"resourceVersion":"42"}}`},
		{"plain version", "application/json", ObjectBody, `{"metadata":{"resourceVersion":"42"}}`, ""},
		{"white space stays", "application/json", ObjectBody, "{ \"metadata\" :\n{ \"resourceVersion\" : \"100042\" } }\n", "{ \"metadata\" :\n{ \"resourceVersion\" : \"42\" } }\n"},
		{"merge patch", "application/merge-patch+json", ObjectBody, `{"metadata":{"resourceVersion":"100042"}}`, `{"metadata":{"resourceVersion":"42"}}`},
		{"merge patch removing it", "application/merge-patch+json", ObjectBody, `{"metadata":{"resourceVersion":null}}`, ""},
		{"strategic patch", "application/strategic-merge-patch+json", ObjectBody, `{"spec":{"x":1},"metadata":{"resourceVersion":"100042"}}`, `{"spec":{"x":1},"metadata":{"resourceVersion":"42"}}`},
		{"elsewhere", "application/json", ObjectBody, `{"spec":{"metadata":{"resourceVersion":"100042"}},"resourceVersion":"100042","preconditions":{"resourceVersion":"100042"}}`, ""},
		{"twice", "application/json", ObjectBody, `{"metadata":{"resourceVersion":"10001","resourceVersion":"10002"},"metadata":{"resourceVersion":"10003"}}`, `{"metadata":{"resourceVersion":"1","resourceVersion":"2"},"metadata":{"resourceVersion":"3"}}`},
		{"spelt in escapes", "application/json", ObjectBody, `{"m\u0065tadata":{"\u0072esourceVersion":"\u0031000\u0034\u0032"}}`, `{"m\u0065tadata":{"\u0072esourceVersion":"42"}}`},
		{"malformed", "application/json", ObjectBody, `{"metadata":{"resourceVersion":"100042"}`, ""},
		{"no object", "application/json", ObjectBody, `"metadata"`, ""},
		{"empty", "application/json", ObjectBody, ``, ""},
		{"json patch", patchJSON, ObjectBody,
			`[{"op":"test","path":"/metadata/resourceVersion","value":"100042"},{"value":"10007","op":"replace","path":"/metadata/resourceVersion"},{"op":"add","path":"/spec/x","value":"100042"}]`,
			`[{"op":"test","path":"/metadata/resourceVersion","value":"42"},{"value":"7","op":"replace","path":"/metadata/resourceVersion"},{"op":"add","path":"/spec/x","value":"100042"}]`},
		{"json patch around it", patchJSON, ObjectBody,
			`[{"op":"replace","path":"/metadata","value":{"resourceVersion":"100042"}},{"op":"test","path":"","value":{"metadata":{"resourceVersion":"10001"}}}]`,
			`[{"op":"replace","path":"/metadata","value":{"resourceVersion":"42"}},{"op":"test","path":"","value":{"metadata":{"resourceVersion":"1"}}}]`},
		{"json patch without values", patchJSON, ObjectBody, `[{"op":"remove","path":"/metadata/resourceVersion"},{"op":"copy","from":"/metadata/resourceVersion","path":"/metadata/resourceVersion"},{},{"path":5,"value":1}]`, ""},
		{"json patch below it", patchJSON, ObjectBody, `[{"op":"add","path":"/metadata/resourceVersion/x","value":"100042"},{"op":"add","path":"metadata/resourceVersion","value":"100042"}]`, ""},
		{"malformed json patch", patchJSON, ObjectBody, `[{"op":"test","path":"/metadata/resourceVersion","value":"100042"}`, ""},
		{"apply in JSON", apply, ObjectBody, `{"metadata":{"resourceVersion":"100042"}}`, `{"metadata":{"resourceVersion":"42"}}`},
		{"apply in YAML", apply, ObjectBody, "# why\nmetadata:\n  resourceVersion: \"100042\"\n  name: x\n", `{"metadata":{"name":"x","resourceVersion":"42"}}`},
		{"apply without it", apply, ObjectBody, "# why\nmetadata: {name: x}\n", ""},
		{"apply with a plain one", apply, ObjectBody, "# why\nmetadata: {name: x, resourceVersion: '42'}\n", ""},
		{"apply with a number", apply, ObjectBody, "metadata: {resourceVersion: 100042}\n", ""},
		{"apply of an alias", apply, ObjectBody, "x: &m {resourceVersion: '100042'}\nmetadata: *m\n", `{"metadata":{"resourceVersion":"42"},"x":{"resourceVersion":"100042"}}`},
		{"malformed YAML", apply, ObjectBody, "metadata: {resourceVersion: '100042'", ""},
		{"update in YAML", "application/yaml", ObjectBody, "metadata: {resourceVersion: '100042'}", `{"metadata":{"resourceVersion":"42"}}`},
		{"delete", "application/json", DeleteOptionsBody, `{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"100042"}}`, `{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"42"}}`},
		{"eviction", "application/json", EvictionBody, `{"metadata":{"resourceVersion":"10001"},"deleteOptions":{"preconditions":{"resourceVersion":"10002"}}}`, `{"metadata":{"resourceVersion":"1"},"deleteOptions":{"preconditions":{"resourceVersion":"2"}}}`},
		{"another type", "text/plain", ObjectBody, `{"metadata":{"resourceVersion":"100042"}}`, ""},
		{"no type at all", ";;", ObjectBody, `{"metadata":{"resourceVersion":"100042"}}`, ""},
		{"no protobuf", ProtobufContentType, ObjectBody, "k8s\x00\xff\xff", ""},
		{"JSON called protobuf", ProtobufContentType, ObjectBody, `{"metadata":{"resourceVersion":"100042"}}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.after
			if want == "" {
				want = test.before
			}
			got, err := test.body.Rewrite(test.contentType, []byte(test.before), translate)
			if err != nil || string(got) != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
		})
	}
}

func TestRewriteFails(t *testing.T) {
	for _, contentType := range []string{"application/cbor", "application/apply-patch+cbor", "application/cbor-seq"} {
		if _, err := ObjectBody.Rewrite(contentType, []byte{0xa0}, translate); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: got %v", contentType, err)
		}
	}
	unknown := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1000-unknown"}}
	for contentType, body := range map[string][]byte{
		"application/json":            []byte(`{"metadata":{"resourceVersion":"1000-unknown"},"spec":}`), // malformed further on
		"application/json-patch+json": []byte(`[{"path":"/metadata/resourceVersion","value":"1000-unknown"}]`),
		"application/yaml":            []byte(`metadata: {resourceVersion: 1000-unknown}`),
		ProtobufContentType:           encodeWith(protoSerializer, unknown),
	} {
		if _, err := ObjectBody.Rewrite(contentType, body, translate); !errors.Is(err, errUnknown) {
			t.Errorf("%s: got %v", contentType, err)
		}
	}
}

// Whatever the encoding, a rewritten body decodes to the object with another version.
func TestRewriteIsDecodeChangeEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := strconv.Itoa(rapid.IntRange(1, 99999).Draw(t, "version"))
		length := rapid.IntRange(0, 200).Draw(t, "length") // so that lengths need one byte before and two after, or the reverse
		merged := "1000" + strings.Repeat("0", length) + version
		shorten := func(v string) (string, error) {
			if v != merged {
				return "", fmt.Errorf("asked to translate %q", v)
			}
			return version, nil
		}
		object := deployment(t, "n", "x", 1)
		object.TypeMeta = metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}
		object.ResourceVersion = merged
		wanted := object
		wanted.ResourceVersion = version

		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("u")), ResourceVersion: &merged}, GracePeriodSeconds: ptr.To[int64](7)}
		wantedOptions := options
		wantedOptions.Preconditions = &metav1.Preconditions{UID: ptr.To(types.UID("u")), ResourceVersion: &version}
		eviction := policyv1.Eviction{TypeMeta: metav1.TypeMeta{Kind: "Eviction", APIVersion: "policy/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}, DeleteOptions: &options}
		wantedEviction := eviction
		wantedEviction.DeleteOptions = &wantedOptions
		envelope := func(o metav1.DeleteOptions) *metav1.DeleteOptions {
			o.TypeMeta = metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}
			return &o
		}
		for _, test := range []struct {
			body         Body
			before, want runtime.Object
		}{
			{ObjectBody, &object, &wanted},
			{DeleteOptionsBody, envelope(options), envelope(wantedOptions)},
			{EvictionBody, &eviction, &wantedEviction},
		} {
			asJSON := encodeWith(jsonSerializer, test.before)
			asYAML, err := yaml.JSONToYAML(asJSON)
			if err != nil {
				t.Fatal(err)
			}
			for contentType, before := range map[string][]byte{"application/json": asJSON, "application/yaml": asYAML, ProtobufContentType: encodeWith(protoSerializer, test.before)} {
				after, err := test.body.Rewrite(contentType, before, shorten)
				if err != nil {
					t.Fatal(err)
				}
				decoder := runtime.Decoder(jsonSerializer)
				if contentType == ProtobufContentType {
					decoder = protoSerializer
				}
				got, _, err := decoder.Decode(after, nil, nil)
				if err != nil {
					t.Fatalf("%s: %v in %q", contentType, err, after)
				}
				if diff := gocmp.Diff(test.want, got); diff != "" {
					t.Fatalf("%s: %s", contentType, diff)
				}
			}
		}
	})
}

func FuzzRewriteJSON(f *testing.F) {
	f.Add([]byte(`{"metadata":{"resourceVersion":"100042"},"deleteOptions":{"preconditions":{"resourceVersion":"10002"}}}`))
	f.Add([]byte(`[{"op":"test","path":"/metadata/resourceVersion","value":"100042"}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, contentType := range []string{"application/json", "application/json-patch+json"} {
			out, err := EvictionBody.Rewrite(contentType, body, translate)
			if err == nil && json.Valid(body) && !json.Valid(out) {
				t.Fatalf("%q became %q", body, out)
			}
		}
	})
}

func FuzzRewriteYAML(f *testing.F) {
	f.Add([]byte("metadata:\n  resourceVersion: \"100042\"\n"))
	f.Add([]byte("x: &m {resourceVersion: '100042'}\nmetadata: *m\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, err := ObjectBody.Rewrite("application/apply-patch+yaml", body, translate)
		if err == nil && !bytes.Equal(out, body) && !json.Valid(out) {
			t.Fatalf("%q became %q", body, out)
		}
	})
}

func FuzzRewriteProto(f *testing.F) {
	f.Add(encodeWith(protoSerializer, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "100042"}}))
	f.Add(encodeWith(protoSerializer, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("100042")}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		always := func(string) (string, error) { return "7", nil }
		once, err := EvictionBody.Rewrite(ProtobufContentType, body, always)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(once, body) {
			return // malformed, or nothing to do
		}
		if _, err := EvictionBody.Rewrite(ProtobufContentType, once, func(v string) (string, error) {
			if v != "7" {
				return "", fmt.Errorf("%q was not translated", v)
			}
			return v, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
