package eventnote

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"pgregory.net/rapid"
)

// TestCut cuts arbitrary texts. They fit, are valid, and begin like the original.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.StringN(1, 20, 40).Draw(t, "text"), rapid.IntRange(1, 200).Draw(t, "times"))
		got := Cut(text)
		switch {
		case len(got) > limit || !utf8.ValidString(got):
			t.Fatalf("%d bytes are left, valid %v", len(got), utf8.ValidString(got))
		case len(text) <= limit && got != text:
			t.Fatalf("a text that fits was cut: %q", got)
		case len(text) > limit && (!strings.HasSuffix(got, more) || !strings.HasPrefix(text, strings.TrimSuffix(got, more)) || len(got) < limit-utf8.UTFMax):
			t.Fatalf("got %d bytes: %q", len(got), got)
		}
	})
}

// fake keeps the last event.
type fake struct {
	events.EventRecorder
	note string
	args []any
}

// Eventf implements events.EventRecorder.
func (f *fake) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	f.note, f.args = note, args
}

// TestRecorder records an event that is too long, and has a percent sign.
func TestRecorder(t *testing.T) {
	f := &fake{}
	Recorder(f).Eventf(nil, nil, "Warning", "Blocked", "Rebalance", "%v", strings.Repeat("100%s ", 500))
	if text, _ := f.args[0].(string); f.note != "%s" || len(text) != limit || !strings.HasPrefix(text, "100%s 100%s") {
		t.Errorf("got %q of %v", f.note, f.args)
	}
}
