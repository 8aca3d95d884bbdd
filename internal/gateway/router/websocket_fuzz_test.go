package router

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzCutFrame checks that splitting any bytes into events terminates, neither loses nor invents bytes, and returns whole events unchanged.
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
				t.Fatalf("%d bytes were split into %d and %d", len(rest), len(event), len(after))
			}
			seen += len(event)
			rest = after
		}
		if seen > len(b) {
			t.Fatalf("got %d bytes from %d", seen, len(b))
		}
		framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
		if event, rest := cutFrame(append(framed, "more"...)); !bytes.Equal(event, b) || string(rest) != "more" {
			t.Fatalf("got %[2]q from %[1]q, with %[3]q left", b, event, rest)
		}
	})
}
