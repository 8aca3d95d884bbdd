package execution

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cellplane/cellplane/internal/engine/cell"
)

// However much a member says about what it refuses, a condition holds it, from what was done to what is wrong.
func TestLongMessage(t *testing.T) {
	l := newTestLane(t, &meaning{})
	work := &cell.Work{Key: cell.Key{Namespace: "karmada-es-member1", Name: "w"}, Cluster: "member1"}
	for _, filler := range []string{"x", "ü", "世", "\xff"} {
		l.failed(work, errors.New("updating Job ns/j: "+strings.Repeat(filler, 50_000)+": field is immutable"))
		outcome, _ := l.e.outcomes.get(work.Key)
		if len(outcome.Message) > longestMessage || !utf8.ValidString(outcome.Message) {
			t.Errorf("the message has %d bytes", len(outcome.Message))
		}
		if !strings.HasPrefix(outcome.Message, "updating Job ns/j: ") || !strings.HasSuffix(outcome.Message, ": field is immutable") {
			t.Errorf("the message is %q", outcome.Message)
		}
	}
	l.failed(work, errors.New("short"))
	if outcome, _ := l.e.outcomes.get(work.Key); outcome.Message != "short" {
		t.Errorf("the message is %q", outcome.Message)
	}
}
