package views

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/splice"
)

// wholeEvents fails if a write is not a sequence of whole events.
type wholeEvents struct {
	*httptest.ResponseRecorder
	t      interface{ Fatalf(string, ...any) }
	frames map[string]bool
}

// Write implements http.ResponseWriter.
func (w wholeEvents) Write(b []byte) (int, error) {
	rest := b
	for len(rest) > 0 {
		size := frameSize(rest, encodingOf(w.Header()))
		if size == 0 || !w.frames[string(rest[:size])] {
			w.t.Fatalf("%q is not an event", rest)
		}
		rest = rest[size:]
	}
	return w.ResponseRecorder.Write(b)
}

// TestEventsAreWrittenAsAWhole writes a watch in pieces of random size.
func TestEventsAreWrittenAsAWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		contentType := rapid.SampledFrom([]string{"application/json", splice.ProtobufContentType + ";stream=watch"}).Draw(t, "content type")
		var stream []byte
		frames := map[string]bool{}
		for i := range rapid.IntRange(0, 5).Draw(t, "events") {
			content := bytes.Repeat([]byte(fmt.Sprint(i)), rapid.SampledFrom([]int{0, 1, 5, 40_000}).Draw(t, "size"))
			frame := append(bytes.Clone(content), '\n')
			if contentType != "application/json" {
				frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
			}
			frames[string(frame)] = true
			stream = append(stream, frame...)
		}
		out := wholeEvents{httptest.NewRecorder(), t, frames}
		w := &eventWriter{ResponseWriter: out}
		w.Header().Set("Content-Type", contentType)
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if written, err := w.Write(rest[:n]); written != n || err != nil {
				t.Fatalf("%d bytes of %d were written: %v", written, n, err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(out.Body.Bytes(), stream) {
			t.Fatalf("%d bytes arrived of %d", out.Body.Len(), len(stream))
		}
	})
}

// TestARefusalIsNoEvent checks that an error is forwarded unchanged.
func TestARefusalIsNoEvent(t *testing.T) {
	out := httptest.NewRecorder()
	w := &eventWriter{ResponseWriter: out, change: func([]byte, splice.Encoding) ([]byte, error) { panic("it was taken for an event") }}
	w.WriteHeader(http.StatusForbidden)
	if _, err := w.Write([]byte("no\n")); err != nil || out.Code != http.StatusForbidden || out.Body.String() != "no\n" {
		t.Errorf("the answer is %d %q, %v", out.Code, out.Body, err)
	}
}

// FuzzEventWriter writes arbitrary bytes. Everything but an incomplete last event must arrive.
func FuzzEventWriter(f *testing.F) {
	f.Add([]byte("{}\n{}"), true, 1)
	f.Add([]byte{0, 0, 0, 2, 'o', 'k', 0, 0}, false, 3)
	f.Fuzz(func(t *testing.T, stream []byte, json bool, piece int) {
		out := httptest.NewRecorder()
		w := &eventWriter{ResponseWriter: out}
		if !json {
			w.Header().Set("Content-Type", splice.ProtobufContentType)
		}
		for rest := stream; len(rest) > 0; {
			n := min(max(piece, 1), len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(append(out.Body.Bytes(), w.pending...), stream) {
			t.Fatal("the written and the pending bytes differ from the input")
		}
	})
}
