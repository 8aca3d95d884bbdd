package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/objbytes"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/testenv/doors"
)

func TestPin(t *testing.T) {
	update := &call{RequestInfo: &request.RequestInfo{Verb: "update"}}
	for _, test := range []struct{ name, mediaType, body, want string }{
		{"merge patch", "application/merge-patch+json", `{"spec":{"replicas":3}}`, `{"metadata":{"resourceVersion":"7"},"spec":{"replicas":3}}`},
		{"object", "application/json", `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a","resourceVersion":"7"}}`},
		{"object with the version", "application/json", `{"metadata":{"resourceVersion":"7"}}`, `{"metadata":{"resourceVersion":"7"}}`},
		{"object with an empty version", "application/json", `{"metadata":{"resourceVersion":""}}`, `{"metadata":{"resourceVersion":"7"}}`},
		{"apply", "application/apply-patch+yaml", "metadata:\n  name: a\n", `{"metadata":{"name":"a","resourceVersion":"7"}}`},
		{"json patch", "application/json-patch+json", `[{"op":"remove","path":"/x"}]`, `[{"op":"add","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/x"},{"op":"test","path":"/metadata/resourceVersion","value":"7"}]`},
		{"unknown media type", "text/plain", `nonsense`, `nonsense`},
	} {
		got, err := pin(update, test.mediaType, []byte(test.body), "7")
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v; want %s", test.name, got, err, test.want)
		}
	}
	for mediaType, body := range map[string]string{"application/json": "nonsense", "application/json-patch+json": "{}"} {
		if got, err := pin(update, mediaType, []byte(body), "7"); !apierrors.IsBadRequest(err) {
			t.Errorf("%s %s: got %s, %v", mediaType, body, got, err)
		}
	}
	got, err := pin(update, splice.ProtobufContentType, protoObject(nil), "7")
	if err != nil || !bytes.Contains(got, objbytes.AppendString(nil, objbytes.MetaVersion, "7")) {
		t.Errorf("protobuf: %q, %v", got, err)
	}
	for _, test := range []struct{ subresource, body, want string }{
		{"eviction", `{"metadata":{"name":"a"}}`, `{"deleteOptions":{"preconditions":{"resourceVersion":"7"}},"metadata":{"name":"a"}}`},
		{"eviction", `{"deleteOptions":{"preconditions":{"resourceVersion":"7"}}}`, `{"deleteOptions":{"preconditions":{"resourceVersion":"7"}}}`},
		{"binding", `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a","resourceVersion":"7"}}`},
		{"token", `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a"}}`},
	} {
		c := &call{RequestInfo: &request.RequestInfo{Verb: "create", Subresource: test.subresource}}
		if got, err := pin(c, "application/json", []byte(test.body), "7"); err != nil || string(got) != test.want {
			t.Errorf("%s %s: %s, %v; want %s", test.subresource, test.body, got, err, test.want)
		}
	}
	for subresource, bodies := range map[string]map[string]bool{
		"eviction": {`{"metadata":{"name":"a"}}`: true}, // the cell refuses those without a version
		"binding":  {`{"metadata":{"name":"a","resourceVersion":"7"}}`: true, `{"metadata":{"name":"a"}}`: false},
		"token":    {`{"metadata":{"name":"a","resourceVersion":"7"}}`: false},
	} {
		for body, want := range bodies {
			c := &call{RequestInfo: &request.RequestInfo{Verb: "create", Subresource: subresource}}
			if got := namesVersion(c, "application/json", []byte(body)); got != want {
				t.Errorf("%s %s names a version: %v, want %v", subresource, body, got, want)
			}
		}
	}
}

// TestPinWithOtherVersions pins every request whose object the cell cannot see. One that names another version, which a client can guess, is a
// conflict. A JSON patch ends with a test instead.
func TestPinWithOtherVersions(t *testing.T) {
	pod := doors.Kind{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true, Verbs: []string{"create", "delete"},
		Subresources: map[string][]string{"eviction": {"create"}, "binding": {"create"}}}
	deployment := doors.Kind{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments"), Kind: "Deployment", Namespaced: true, Verbs: []string{"create", "delete"},
		Subresources: map[string][]string{"scale": {"update", "patch"}}}
	tried := 0
	for _, kind := range []doors.Kind{pod, deployment} {
		object, _, err := kind.Sample("default", "some")
		if err != nil {
			t.Fatal(err)
		}
		all, err := kind.Of(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if d.Method == http.MethodDelete || strings.HasSuffix(d.Path, "/bindings") { // the latter are served as pods/binding
				continue
			}
			tried++
			named, _, err := d.Naming("8")
			if err != nil {
				t.Fatal(err)
			}
			c := &call{RequestInfo: &request.RequestInfo{Verb: map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch"}[d.Method], Subresource: path.Base(d.Path)}}
			got, err := pin(c, d.ContentType, named.Body, "7")
			inPatch := d.ContentType == string(types.JSONPatchType) && strings.HasSuffix(string(got), `{"op":"test","path":"/metadata/resourceVersion","value":"7"}]`)
			if !errors.Is(err, errStale) && !inPatch {
				t.Errorf("%s: %s, %v", d, got, err)
			}
		}
	}
	if tried < 15 {
		t.Errorf("only %d requests were tried", tried)
	}
}

// protoObject returns an object with labels in protobuf.
func protoObject(labels map[string]string) []byte {
	metadata := protowire.AppendString(protowire.AppendTag(nil, objbytes.MetaName, protowire.BytesType), "some")
	for key, value := range labels {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
		entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value)
		metadata = protowire.AppendBytes(protowire.AppendTag(metadata, objbytes.MetaLabels, protowire.BytesType), entry)
	}
	object := protowire.AppendBytes(protowire.AppendTag(nil, objbytes.ObjectMetadata, protowire.BytesType), metadata)
	return protowire.AppendBytes(protowire.AppendTag([]byte(objbytes.ProtobufPrefix), objbytes.UnknownRaw, protowire.BytesType), object)
}

func TestStatusIn(t *testing.T) {
	for _, test := range []struct{ name, mediaType, body, want string }{
		{"object", "application/json", `{"metadata":{"labels":{"cellplane.io/rebalance-status":"migrated"}}}`, "migrated"},
		{"label name in an annotation", "application/json", `{"metadata":{"annotations":{"x":"cellplane.io/rebalance-status"}}}`, ""},
		{"table", "application/json", `{"kind":"Table","rows":[{"object":{"metadata":{"labels":{"cellplane.io/rebalance-status":"migrating"}}}}]}`, "migrating"},
		{"yaml", "application/yaml", "metadata:\n  labels:\n    cellplane.io/rebalance-status: migrated\n", "migrated"},
		{"protobuf", splice.ProtobufContentType, string(protoObject(map[string]string{"a": "b", names.RebalanceStatusLabel: "migrated"})), "migrated"},
		{"protobuf without the label", splice.ProtobufContentType, string(protoObject(map[string]string{"a": "b"})), ""},
		{"invalid JSON", "application/json", "nonsense", ""},
	} {
		if got := statusIn(test.mediaType, []byte(test.body)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestConfirmationRequest checks that the request that confirms an epoch is valid.
func TestConfirmationRequest(t *testing.T) {
	if confirmURL == nil || confirmURL.Path == "" || confirmURL.Query().Get("dryRun") != "All" {
		t.Errorf("the URL is %v", confirmURL)
	}
	if !json.Valid([]byte(fence.ConfirmBody)) {
		t.Errorf("the body is %s", fence.ConfirmBody)
	}
}
