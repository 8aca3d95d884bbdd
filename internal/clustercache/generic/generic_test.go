package generic_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/clustercache/generic"
)

var widgets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func TestRoundTrip(t *testing.T) {
	for name, text := range map[string]string{
		"all parts": `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"ns","uid":"u","resourceVersion":"7","generation":2,
			"creationTimestamp":"2026-03-01T09:00:00Z","labels":{"a":"b"},"annotations":{"c":"d"},
			"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"o","controller":true}]},
			"spec":{"size":9007199254740993,"ratio":0.5,"names":["a","b"],"nothing":null,"deep":{"er":[{"x":true}]}},"status":{"ready":"yes"},"extra":"top level"}`,
		"metadata only": `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := generic.Encode([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := generic.Decode(raw, widgets)
			if err != nil {
				t.Fatal(err)
			}
			shown, err := json.Marshal(decoded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parsed(t, []byte(text)), parsed(t, shown)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// parsed keeps numbers as they are written.
func parsed(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		t.Fatal(err)
	}
	object := map[string]any{}
	for name, part := range parts {
		var value any
		if err := json.Unmarshal(part, &value); err != nil {
			t.Fatal(err)
		}
		if meta, ok := value.(map[string]any); ok && name == "metadata" && meta["creationTimestamp"] == nil {
			delete(meta, "creationTimestamp")
		}
		object[name] = value
	}
	if size, ok := parts["spec"]; ok {
		var spec struct{ Size json.Number }
		if err := json.Unmarshal(size, &spec); err != nil {
			t.Fatal(err)
		}
		object["size as written"] = spec.Size.String()
	}
	return object
}

func TestWhatIsNoObject(t *testing.T) {
	for _, text := range []string{``, `[]`, `{`, `{"kind":"Widget"}`, `{"metadata":7}`, `{"metadata":{"labels":{"a":1}}}`} {
		if raw, err := generic.Encode([]byte(text)); err == nil {
			t.Errorf("%q was encoded as %q", text, raw)
		}
	}
	if object, err := generic.Decode([]byte("\x0a\x7f"), widgets); err == nil {
		t.Errorf("broken bytes were decoded as %v", object)
	}
}
