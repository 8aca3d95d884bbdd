package splice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// flow counts the bytes that have been read and not been written.
type flow struct {
	held, most int
}

type flowReader struct {
	io.Reader
	*flow
}

func (r flowReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.held += n
	r.most = max(r.most, r.held)
	return n, err
}

type flowWriter struct {
	io.Writer
	*flow
}

func (w flowWriter) Write(b []byte) (int, error) {
	w.held -= len(b)
	return w.Writer.Write(b)
}

// largeLists are lists with objects of 10 kB; the object number i is in the list i modulo the number of lists.
func largeLists(codec listCodec, lists, objects int) [][]byte {
	items := make([]deployments, lists)
	for i := range objects {
		items[i%lists] = append(items[i%lists], appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: fmt.Sprintf("d-%06d", i), ResourceVersion: "7", Labels: map[string]string{"number": strconv.Itoa(i)},
			Annotations: map[string]string{"text": strings.Repeat("x", 10_000)},
		}})
	}
	bodies := make([][]byte, lists)
	for i := range bodies {
		bodies[i] = page(codec, i, items[i], "", 0)
	}
	return bodies
}

// TestLargeListsAreNotHeld merges lists of 5 MB in every encoding, with objects that are left out. What has been read and not been written
// stays small, so that a client that reads slowly makes the sources wait.
func TestLargeListsAreNotHeld(t *testing.T) {
	const objects = 500
	for _, codec := range listCodecs {
		t.Run(codec.name, func(t *testing.T) {
			var through flow
			var out bytes.Buffer
			var readers []io.Reader
			for _, body := range largeLists(codec, 3, objects) {
				readers = append(readers, flowReader{bytes.NewReader(body), &through})
			}
			p, err := mergeReaders(codec.name, flowWriter{&out, &through}, readers, ListOptions{Finish: finishPlain, Choose: func(candidates []*Item) int {
				object, err := candidates[0].Object()
				if number, _ := strconv.Atoi(object.Label("number")); err != nil || number%100 == 0 {
					return -1
				}
				return 0
			}})
			if err != nil || p.Items != objects-objects/100 {
				t.Fatalf("%d objects were merged, %v", p.Items, err)
			}
			_, got, err := codec.decode(out.Bytes())
			if err != nil || len(got) != p.Items {
				t.Fatalf("%d objects arrived, %v", len(got), err)
			}
			if most := 1 << 20; through.most > most {
				t.Errorf("%d bytes had been read and not been written, want at most %d", through.most, most)
			}
		})
	}
}

// TestObjectsThatAreLeftOutAreNotSent looks for the content of an object that a merge leaves out.
func TestObjectsThatAreLeftOutAreNotSent(t *testing.T) {
	hidden := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "hidden", ResourceVersion: "7"}, Spec: appsv1.DeploymentSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "secret-of-another-cell"}},
	}}
	for _, codec := range listCodecs {
		var out bytes.Buffer
		body := page(codec, 0, deployments{hidden}, "", 0)
		if _, err := codec.merge(&out, [][]byte{body}, ListOptions{Finish: finishPlain, Choose: func([]*Item) int { return -1 }}); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(out.Bytes(), []byte("secret")) || bytes.Contains(out.Bytes(), []byte("hidden")) {
			t.Errorf("%s: an object that is not shown is in the list: %q", codec.name, out.Bytes())
		}
		if _, got, err := codec.decode(out.Bytes()); err != nil || len(got) != 0 {
			t.Errorf("%s: got %v, %v", codec.name, got, err)
		}
	}
}

func mergeReaders(codec string, w io.Writer, lists []io.Reader, options ListOptions) (Page, error) {
	switch codec {
	case "protobuf":
		return MergeProto(w, lists, options)
	case "table":
		return MergeTables(w, lists, TableOptions{ListOptions: options})
	default:
		return MergeJSON(w, lists, options)
	}
}

// TestPagesEndAtTheirSize reads a list in pages whose limit is far larger than what may be held. No page holds much more than that, and
// together they have every object once.
func TestPagesEndAtTheirSize(t *testing.T) {
	const most = 100_000
	codec := listCodecs[slices.IndexFunc(listCodecs, func(c listCodec) bool { return c.name == "protobuf" })]
	items := make([]deployments, 3)
	for i := range 90 {
		items[i%3] = append(items[i%3], appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: fmt.Sprintf("d-%06d", i), ResourceVersion: "7", Annotations: map[string]string{"text": strings.Repeat("x", 10_000)},
		}})
	}
	seen, pages := 0, 0
	for after, more := "", true; more; pages++ {
		bodies := make([][]byte, len(items))
		for i := range bodies {
			bodies[i] = page(codec, i, items[i], after, 1000)
		}
		held := 0
		var out bytes.Buffer
		p, err := codec.merge(&out, bodies, ListOptions{Finish: finishPlain, Limit: 1000, MaxPage: most, Hold: func(bytes int) error { held += bytes; return nil }})
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := codec.decode(out.Bytes())
		if err != nil || len(got) != p.Items || len(got) == 0 || key(&got[len(got)-1]) != p.Last {
			t.Fatalf("%d objects arrived of %+v, %v", len(got), p, err)
		}
		if held > 3*most {
			t.Errorf("a page of at most %d bytes held %d", most, held)
		}
		for i := range got {
			if want := fmt.Sprintf("d-%06d", seen+i); got[i].Name != want {
				t.Fatalf("got %s, want %s", got[i].Name, want)
			}
		}
		seen, after, more = seen+len(got), p.Last, p.More
	}
	if seen != 90 || pages < 9 {
		t.Errorf("%d objects arrived on %d pages", seen, pages)
	}
}

// TestEventsAreHeldUntilTheNextOne reads a large and a small event: memory is asked for before the large one is read, and returned after it.
func TestEventsAreHeldUntilTheNextOne(t *testing.T) {
	object := func(size int) *appsv1.Deployment {
		return &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", ResourceVersion: "7", Annotations: map[string]string{"text": strings.Repeat("x", size)}},
		}
	}
	const large = 1 << 20
	for encoding, serializer := range map[Encoding]runtime.Serializer{JSON: jsonSerializer, Protobuf: protoSerializer} {
		var stream bytes.Buffer
		for _, size := range []int{10, large, 10, 10} {
			stream.Write(eventOf(t, encoding, encodeWith(serializer, object(size))))
		}
		held := 0
		reader := NewEventReader(&stream, encoding, 0)
		reader.Hold = func(bytes int) error { held += bytes; return nil }
		reader.Release = func(bytes int) { held -= bytes }
		for i, want := range []bool{false, true, false, false} {
			event, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			if got := held >= large; got != want || event.Object.Name != "d" {
				t.Errorf("%v: after event %d: %d bytes are held", encoding, i, held)
			}
		}
		if held != 0 {
			t.Errorf("%v: %d bytes are held at the end", encoding, held)
		}
		refused := errors.New("no memory")
		stream.Write(eventOf(t, encoding, encodeWith(serializer, object(large))))
		reader.Hold = func(int) error { return refused }
		if _, err := reader.Next(); !errors.Is(err, refused) {
			t.Errorf("%v: a large event was read without memory: %v", encoding, err)
		}
	}
}

func eventOf(t *testing.T, encoding Encoding, object []byte) []byte {
	t.Helper()
	if encoding == JSON {
		return fmt.Appendf(nil, `{"type":"MODIFIED","object":%s}`+"\n", bytes.TrimSpace(object))
	}
	event := &metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: object}}
	body, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}
