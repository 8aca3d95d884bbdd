package execution

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cellplane/cellplane/internal/engine/cell"
)

// Long error messages of a member are shortened so that a condition can hold them; beginning and end stay.
func TestLongMessage(t *testing.T) {
	q := newTestQueue(t, &fakeInterpreter{})
	work := &cell.Work{Key: cell.Key{Namespace: "karmada-es-member1", Name: "w"}, Cluster: "member1"}
	for _, filler := range []string{"x", "ü", "世", "\xff"} {
		q.failed(work, errors.New("updating Job ns/j: "+strings.Repeat(filler, 50_000)+": field is immutable"))
		outcome, _ := q.e.outcomes.get(work.Key)
		if len(outcome.Message) > longestMessage || !utf8.ValidString(outcome.Message) {
			t.Errorf("the message has %d bytes", len(outcome.Message))
		}
		if !strings.HasPrefix(outcome.Message, "updating Job ns/j: ") || !strings.HasSuffix(outcome.Message, ": field is immutable") {
			t.Errorf("the message is %q", outcome.Message)
		}
	}
	q.failed(work, errors.New("short"))
	if outcome, _ := q.e.outcomes.get(work.Key); outcome.Message != "short" {
		t.Errorf("the message is %q", outcome.Message)
	}
}
