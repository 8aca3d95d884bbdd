package router

import (
	"bytes"
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/objbytes"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// TestRank says what a list shows of an object that is in two cells.
func TestRank(t *testing.T) {
	compiled, err := slots.Compile(2, []slots.Cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 1, State: slots.In}})
	if err != nil {
		t.Fatal(err)
	}
	key := ""
	for i := 0; key == ""; i++ {
		if name := "n/" + slots.Slot(i).String(); compiled.Route(slotOfKey(name)).Moving() {
			key = name
		}
	}
	const old, target = slots.Index(0), slots.Index(1)
	c := &call{RequestInfo: &request.RequestInfo{}, view: &topology.View{Map: compiled}, placement: placement.ByName}
	s := &cut{rt: &Router{}, c: c, cells: []slots.Index{old, target}, versions: []uint64{100, 50}}
	for _, test := range []struct {
		name           string
		cell           slots.Index
		status, copied string
		want           int
	}{
		{"not moved yet", old, "", "", actives},
		{"moved", target, "", "", owned},
		{"frozen", old, names.RebalanceMigrating, "", copies},
		{"copied", target, names.RebalanceMigrating, "", copies},
		{"left, and the copy is in the list", old, names.RebalanceMigrated, "b/50", hidden},
		{"left, and the copy came after the list", old, names.RebalanceMigrated, "b/51", originals},
		{"left for a cell that nobody knows", old, names.RebalanceMigrated, "x/51", hidden},
		{"left without a word", old, names.RebalanceMigrated, "", hidden},
	} {
		if got := s.rank(test.cell, key, test.status, test.copied); got != test.want {
			t.Errorf("%s: rank %d, want %d", test.name, got, test.want)
		}
	}
}

func TestPin(t *testing.T) {
	for _, test := range []struct{ name, mediaType, body, want string }{
		{"merge patch", "application/merge-patch+json", `{"spec":{"replicas":3}}`, `{"metadata":{"resourceVersion":"7"},"spec":{"replicas":3}}`},
		{"object", "application/json", `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a","resourceVersion":"7"}}`},
		{"object of a version", "application/json", `{"metadata":{"resourceVersion":"5"}}`, `{"metadata":{"resourceVersion":"5"}}`},
		{"object of no version", "application/json", `{"metadata":{"resourceVersion":""}}`, `{"metadata":{"resourceVersion":"7"}}`},
		{"apply", "application/apply-patch+yaml", "metadata:\n  name: a\n", `{"metadata":{"name":"a","resourceVersion":"7"}}`},
		{"json patch", "application/json-patch+json", `[{"op":"remove","path":"/x"}]`, `[{"op":"add","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/x"}]`},
		{"unknown media type", "text/plain", `nonsense`, `nonsense`},
	} {
		got, err := pin(test.mediaType, []byte(test.body), "7")
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v; want %s", test.name, got, err, test.want)
		}
	}
	for mediaType, body := range map[string]string{"application/json": "nonsense", "application/json-patch+json": "{}"} {
		if got, err := pin(mediaType, []byte(body), "7"); !apierrors.IsBadRequest(err) {
			t.Errorf("%s %s: got %s, %v", mediaType, body, got, err)
		}
	}
	got, err := pin(splice.ProtobufContentType, protoObject(nil), "7")
	if err != nil || !bytes.Contains(got, objbytes.AppendString(nil, objbytes.MetaVersion, "7")) {
		t.Errorf("protobuf: %q, %v", got, err)
	}
}

// protoObject is an object with labels in protobuf.
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
		{"mentioned elsewhere", "application/json", `{"metadata":{"annotations":{"x":"cellplane.io/rebalance-status"}}}`, ""},
		{"table", "application/json", `{"kind":"Table","rows":[{"object":{"metadata":{"labels":{"cellplane.io/rebalance-status":"migrating"}}}}]}`, "migrating"},
		{"yaml", "application/yaml", "metadata:\n  labels:\n    cellplane.io/rebalance-status: migrated\n", "migrated"},
		{"protobuf", splice.ProtobufContentType, string(protoObject(map[string]string{"a": "b", names.RebalanceStatusLabel: "migrated"})), "migrated"},
		{"protobuf without", splice.ProtobufContentType, string(protoObject(map[string]string{"a": "b"})), ""},
		{"nonsense", "application/json", "nonsense", ""},
	} {
		if got := statusIn(test.mediaType, []byte(test.body)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestPlaceIn(t *testing.T) {
	for text, want := range map[string]uint64{"a/5": 5, "a/0": 0, "a": 0, "": 0, "a/-1": 0, "a/x": 0, "a/99999999999999999999": 0} {
		if cell, version, ok := placeIn(text); ok != (want != 0) || (ok && (cell != "a" || version != want)) {
			t.Errorf("%q: %q, %d, %v", text, cell, version, ok)
		}
	}
}

// The question that confirms a map is one that an API server can answer.
func TestConfirmation(t *testing.T) {
	if confirmURL == nil || confirmURL.Path == "" || confirmURL.Query().Get("dryRun") != "All" {
		t.Errorf("asked is %v", confirmURL)
	}
	if !json.Valid([]byte(fence.ConfirmBody)) {
		t.Errorf("asked is %s", fence.ConfirmBody)
	}
}
