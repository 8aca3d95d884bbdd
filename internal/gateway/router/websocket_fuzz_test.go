package router

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzCutFrame checks that cutting any bytes into events ends and neither loses nor invents any, and that whole events come out as they are.
func FuzzCutFrame(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 'h', 'i', 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		seen := 0
		for rest := b; len(rest) > 0; {
			event, after := cutFrame(rest)
			if len(after) >= len(rest) || len(event)+len(after) > len(rest) {
				t.Fatalf("%d bytes were cut into %d and %d", len(rest), len(event), len(after))
			}
			seen += len(event)
			rest = after
		}
		if seen > len(b) {
			t.Fatalf("%d bytes came out of %d", seen, len(b))
		}
		framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
		if event, rest := cutFrame(append(framed, "more"...)); !bytes.Equal(event, b) || string(rest) != "more" {
			t.Fatalf("%q came out as %q, with %q left", b, event, rest)
		}
	})
}
