package delta_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/clustercache/delta"
	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
)

func encodedPod(t testing.TB, i int) []byte {
	t.Helper()
	b, err := synthetic.Pod(i, 0).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPodsOfAWorkloadTakeLittle(t *testing.T) {
	template := encodedPod(t, 0)
	pod := encodedPod(t, 1)
	d := delta.NewTemplate(template).Append(nil, pod)
	got, err := delta.Decode(nil, template, d)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, pod) {
		t.Fatal("the pod changed")
	}
	if len(d) > 450 {
		t.Errorf("a pod of %d bytes takes %d, want at most 450", len(pod), len(d))
	}
}

func TestRoundTrip(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.Map(rapid.StringMatching(`[0-9a-f]{0,70}`), func(s string) []byte { return []byte(s) }),
		rapid.Map(rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), func(s string) []byte { return []byte(s) }),
		rapid.Map(rapid.IntRange(1, 60), func(n int) []byte { return bytes.Repeat([]byte{'a'}, n) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(piece, 1, 12).Draw(t, "pieces")
		join := func(name string) []byte {
			return bytes.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 20).Draw(t, name), nil)
		}
		content, b, prefix := join("template"), join("content"), join("prefix")
		d := delta.NewTemplate(content).Append(bytes.Clone(prefix), b)
		if !bytes.HasPrefix(d, prefix) {
			t.Fatal("Append changed the prefix")
		}
		got, err := delta.Decode(bytes.Clone(prefix), content, d[len(prefix):])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append(prefix, b...)) {
			t.Fatalf("got %q", got)
		}
	})
}

func FuzzDecode(f *testing.F) {
	template := encodedPod(f, 0)
	f.Add(template, delta.NewTemplate(template).Append(nil, encodedPod(f, 1)))
	f.Add([]byte("abc"), []byte{3, 12, 0})
	f.Fuzz(func(t *testing.T, content, d []byte) {
		got, err := delta.Decode(nil, content, d)
		if err != nil {
			return
		}
		again, err := delta.Decode(nil, content, delta.NewTemplate(content).Append(nil, got))
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("encoding it again gives %q, %v", again, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	template := delta.NewTemplate(encodedPod(b, 0))
	pod := encodedPod(b, 1)
	b.SetBytes(int64(len(pod)))
	var buffer []byte
	for b.Loop() {
		buffer = template.Append(buffer[:0], pod)
	}
}

func BenchmarkDecode(b *testing.B) {
	content := encodedPod(b, 0)
	pod := encodedPod(b, 1)
	d := delta.NewTemplate(content).Append(nil, pod)
	b.SetBytes(int64(len(pod)))
	var buffer []byte
	for b.Loop() {
		buffer, _ = delta.Decode(buffer[:0], content, d)
	}
}
