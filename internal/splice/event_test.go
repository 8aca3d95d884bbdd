package splice

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/framer"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// watchCodec is an encoding of watches.
type watchCodec struct {
	name     string
	encoding Encoding
	object   runtime.Encoder
	decode   runtime.Decoder
	event    runtime.Encoder
	frame    func([]byte) []byte
	unframe  func(io.ReadCloser) io.ReadCloser
}

var watchCodecs = []watchCodec{
	{"json", JSON, jsonSerializer, jsonSerializer, jsonSerializer, func(b []byte) []byte { return b }, framer.NewJSONFramedReader},
	{"protobuf", Protobuf, protoSerializer, protoSerializer, rawSerializer, lengthFrame, framer.NewLengthDelimitedFrameReader},
}

func lengthFrame(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func (c watchCodec) encode(kind EventType, object runtime.Object) []byte {
	raw := encodeWith(c.object, object)
	return c.frame(encodeWith(c.event, &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}))
}

// decodeEvent decodes one framed event as clients do.
func (c watchCodec) decodeEvent(t interface{ Fatal(...any) }, framed []byte) (string, runtime.Object) {
	buf := make([]byte, len(framed)+1)
	n, err := c.unframe(io.NopCloser(bytes.NewReader(framed))).Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	var event metav1.WatchEvent
	if c.encoding == JSON {
		err = json.Unmarshal(buf[:n], &event)
	} else {
		err = event.Unmarshal(buf[:n])
	}
	if err != nil {
		t.Fatal(err)
	}
	object, _, err := c.decode.Decode(event.Object.Raw, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return event.Type, object
}

func TestEventsKeepEverythingButTheVersion(t *testing.T) {
	for _, codec := range watchCodecs {
		t.Run(codec.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				var stream []byte
				var sent deployments
				var kinds []EventType
				for range rapid.IntRange(0, 4).Draw(t, "events") {
					object := deployment(t, rapid.SampledFrom([]string{"", "n"}).Draw(t, "namespace"), "x", 1)
					object.TypeMeta = metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}
					kind := rapid.SampledFrom([]EventType{Added, Modified, Deleted}).Draw(t, "type")
					sent, kinds = append(sent, object), append(kinds, kind)
					stream = append(stream, codec.encode(kind, &object)...)
				}
				version := rapid.StringMatching(`1[0-9]{0,400}`).Draw(t, "version")
				reader := NewEventReader(inPieces([][]byte{stream})[0], codec.encoding, 0)
				for i := range sent {
					event, err := reader.Next()
					if err != nil {
						t.Fatal(err)
					}
					want := sent[i].DeepCopy()
					if event.Type != kinds[i] || event.Object.Namespace != want.Namespace || event.Object.Name != want.Name || event.Object.UID != string(want.UID) ||
						event.Object.ResourceVersion != "1001" || event.Object.Label("source") != "1" || event.Object.Annotation("text") != want.Annotations["text"] {
						t.Fatalf("event %d is %+v", i, event)
					}
					kind, got := codec.decodeEvent(t, event.Append(nil, version))
					want.ResourceVersion = version
					if diff := gocmp.Diff(runtime.Object(want), got); diff != "" || kind != string(kinds[i]) {
						t.Fatalf("%s %s", kind, diff)
					}
				}
				if _, err := reader.Next(); !errors.Is(err, io.EOF) {
					t.Fatalf("after the last event comes %v", err)
				}
			})
		})
	}
}

func TestBookmarksAndErrors(t *testing.T) {
	for _, codec := range watchCodecs {
		t.Run(codec.name, func(t *testing.T) {
			bookmark := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5"}}
			end := bookmark.DeepCopy()
			end.Annotations = map[string]string{InitialEventsEnd: "true"}
			status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old"}
			var stream []byte
			for _, e := range []struct {
				kind   EventType
				object runtime.Object
			}{{Bookmark, bookmark}, {Bookmark, end}, {Error, status}} {
				stream = append(stream, codec.encode(e.kind, e.object)...)
			}
			reader := NewEventReader(bytes.NewReader(stream), codec.encoding, 0)
			var events []*Event
			for range 3 {
				event, err := reader.Next()
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, event)
			}
			if e := events[0]; e.Type != Bookmark || e.InitialEventsEnd || e.Object.ResourceVersion != "5" {
				t.Errorf("got %+v", e)
			}
			if e := events[1]; e.Type != Bookmark || !e.InitialEventsEnd {
				t.Errorf("got %+v", e)
			}
			if _, got := codec.decodeEvent(t, events[1].Append(nil, "777")); got.(*appsv1.Deployment).ResourceVersion != "777" || got.(*appsv1.Deployment).Annotations[InitialEventsEnd] != "true" {
				t.Errorf("the end of the initial events became %+v", got)
			}
			if e := events[2]; e.Type != Error || e.Code != 410 || e.Reason != "Expired" {
				t.Errorf("got %+v", e)
			}
			if _, got := codec.decodeEvent(t, events[2].Append(nil, "777")); !reflect.DeepEqual(got, status) {
				t.Errorf("the error became %+v", got)
			}
		})
	}
}

func TestNewErrorEvent(t *testing.T) {
	status := metav1.Status{Status: "Failure", Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old: \"x\""}
	for _, codec := range watchCodecs {
		event, err := NewErrorEvent(codec.encoding, status)
		if err != nil {
			t.Fatal(err)
		}
		want := status
		want.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		kind, got := codec.decodeEvent(t, event.Append(nil, "7"))
		if diff := gocmp.Diff(runtime.Object(&want), got); diff != "" || kind != "ERROR" || event.Code != 410 {
			t.Errorf("%s: %s %d %s", codec.name, kind, event.Code, diff)
		}
	}
}

func TestTableEvents(t *testing.T) {
	const before = `{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"columnDefinitions":null,"rows":[` +
		`{"cells":["x",{"resourceVersion":"9"}],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"8","annotations":{"k8s.io/initial-events-end":"true"}}}},` +
		`{"cells":[],"object":{"metadata":{"name":"y"}}}]}}`
	event, err := ParseEvent([]byte(before), JSON)
	if err != nil {
		t.Fatal(err)
	}
	if event.Object.Key() != "n/x" || event.Object.UID != "u" || event.Object.ResourceVersion != "8" || event.InitialEventsEnd {
		t.Errorf("got %+v", event)
	}
	want := strings.NewReplacer(`metadata":{"resourceVersion":"9"`, `metadata":{"resourceVersion":"77"`, `"resourceVersion":"8"`, `"resourceVersion":"77"`, `{"name":"y"}`, `{"resourceVersion":"77","name":"y"}`).Replace(before)
	if got := string(event.Append(nil, "77")); got != want+"\n" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"77"},"columnDefinitions":null,"rows":[` +
		`{"cells":["x",{"resourceVersion":"9"}],"object":null},{"cells":[],"object":null}]}}`
	if got := string(event.AppendWithoutObjects(nil, "77")); got != want+"\n" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	bookmark, err := ParseEvent([]byte(strings.Replace(before, "ADDED", "BOOKMARK", 1)), JSON)
	if err != nil || !bookmark.InitialEventsEnd {
		t.Errorf("the bookmark in a Table is read as %+v, %v", bookmark, err)
	}
	late := `{"object":{"rows":[{"object":{"metadata":{}}}],"metadata":{"resourceVersion":"9"},"kind":"Table"},"type":"MODIFIED"}`
	event, err = ParseEvent([]byte(late), JSON)
	if err != nil || event.Object.ResourceVersion != "9" {
		t.Fatalf("got %+v, %v", event, err)
	}
	want = `{"object":{"rows":[{"object":{"metadata":{"resourceVersion":"7"}}}],"metadata":{"resourceVersion":"7"},"kind":"Table"},"type":"MODIFIED"}` + "\n"
	if got := string(event.Append(nil, "7")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBrokenEvents(t *testing.T) {
	for name, broken := range map[string]string{
		"no object":         `{"type":"ADDED"}`,
		"unknown type":      `{"type":"CHANGED","object":{"metadata":{"resourceVersion":"1"}}}`,
		"no type":           `{"object":{"metadata":{"resourceVersion":"1"}}}`,
		"no metadata":       `{"type":"ADDED","object":{"kind":"X"}}`,
		"no version":        `{"type":"ADDED","object":{"kind":"X","metadata":{"name":"x"}}}`,
		"version no string": `{"type":"ADDED","object":{"kind":"X","metadata":{"resourceVersion":1}}}`,
		"cut":               `{"type":"ADDED","object":{"kind":"X","metadata":{"resourceVersion":"1"}}`,
		"array":             `[]`,
		"code no number":    `{"type":"ERROR","object":{"code":"x"}}`,
		"row of None":       `{"type":"ADDED","object":{"kind":"Table","metadata":{"resourceVersion":"1"},"rows":[{"cells":[],"object":null}]}}`,
		"too large":         `{"type":"ADDED","object":{"kind":"X","metadata":{"resourceVersion":"1","x":"` + strings.Repeat("x", 1<<17) + `"}}}`,
	} {
		if event, err := NewEventReader(strings.NewReader(broken), JSON, 1<<16).Next(); err == nil {
			t.Errorf("%s: got %+v", name, event)
		}
	}
	for name, broken := range map[string]string{
		"cut in the length":     "\x00\x00",
		"cut in the message":    "\x00\x00\x00\x09abc",
		"longer than all bytes": "\xff\xff\xff\xffabc",
		"empty":                 "\x00\x00\x00\x00",
		"no envelope":           string(lengthFrame([]byte("\x0a\x05ADDED\x12\x03\x0a\x01x"))),
		"empty envelope":        string(lengthFrame([]byte("\x0a\x05ADDED\x12\x06\x0a\x04k8s\x00"))),
	} {
		if event, err := NewEventReader(strings.NewReader(broken), Protobuf, 1<<16).Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: got %+v, %v", name, event, err)
		}
	}
}

func FuzzJSONEvent(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"kind":"X","metadata":{"name":"x","resourceVersion":"1"},"spec":{}}}`))
	f.Add([]byte(`{"type":"BOOKMARK","object":{"kind":"Table","metadata":{"resourceVersion":"1"},"rows":[{"cells":["a\"b"],"object":{"metadata":{"resourceVersion":"2"}}}]}}`))
	f.Add([]byte(`{"type":"ERROR","object":{"code":410,"reason":"Expired"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		event, err := ParseEvent(raw, JSON)
		if err != nil || !json.Valid(raw) {
			return
		}
		for _, out := range [][]byte{event.Append(nil, "123"), event.AppendWithoutObjects(nil, "123")} {
			if !json.Valid(out) {
				t.Fatalf("%q became %q", raw, out)
			}
		}
		again, err := ParseEvent(bytes.TrimSpace(event.Append(nil, "123")), JSON)
		if err != nil || again.Type != event.Type || again.Object.Key() != event.Object.Key() || (event.Type != Error && again.Object.ResourceVersion != "123") {
			t.Fatalf("%q became %+v, %v", raw, again, err)
		}
	})
}

func FuzzProtoEvent(f *testing.F) {
	object := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "5", Labels: map[string]string{"a": "b"}}}
	f.Add(watchCodecs[1].encode(Added, object)[4:])
	f.Add(watchCodecs[1].encode(Error, &metav1.Status{Code: 410})[4:])
	f.Fuzz(func(t *testing.T, raw []byte) {
		event, err := ParseEvent(raw, Protobuf)
		if err != nil {
			return
		}
		version := strings.Repeat("1", 300)
		out := event.Append(nil, version)
		if int(binary.BigEndian.Uint32(out)) != len(out)-4 {
			t.Fatalf("a frame of %d bytes has the length prefix %d", len(out)-4, binary.BigEndian.Uint32(out))
		}
		again, err := ParseEvent(out[4:], Protobuf)
		if err != nil || again.Type != event.Type || again.Object.Key() != event.Object.Key() || (event.Type != Error && again.Object.ResourceVersion != version) {
			t.Fatalf("%q became %+v, %v", raw, again, err)
		}
	})
}

// Every valid JSON value is skimmed to its end, however it is cut.
func FuzzSkim(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\\\"",{}]}`, `"x\\"`, ` -1.5e+3 `, `null`, `[[[["]"]]]]`} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if !json.Valid(b) {
			_, _ = objbytes.ValueAt(b, 0)
			return
		}
		value, err := objbytes.ValueAt(b, 0)
		if err != nil || !bytes.Equal(value.Of(b), bytes.TrimSpace(b)) {
			t.Fatalf("%q is skimmed as %q, %v", b, value.Of(b), err)
		}
		cut = min(max(cut, 0), len(b))
		streamed, err := newJSONStream(io.MultiReader(bytes.NewReader(b[:cut]), bytes.NewReader(b[cut:])), 0).value()
		if err != nil || !bytes.Equal(streamed, bytes.TrimSpace(b)) {
			t.Fatalf("%q cut at %d is skimmed as %q, %v", b, cut, streamed, err)
		}
	})
}
