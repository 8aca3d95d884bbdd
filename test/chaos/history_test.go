package chaos

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// op is an operation with its begin and end.
func op(from, to int64, q question, a answer) porcupine.Operation {
	q.key = "k"
	if a.outcome == unknown {
		to = math.MaxInt64
	}
	return porcupine.Operation{Call: from, Return: to, Input: q, Output: a}
}

// lost is a loss that was reported with a last value.
func lost(from, to int64, last string, candidates ...string) porcupine.Operation {
	var values []any
	for _, c := range candidates {
		values = append(values, object(c))
	}
	return op(from, to, question{verb: lose, expected: last, candidates: &values}, answer{outcome: done})
}

func TestCheck(t *testing.T) {
	made := op(0, 1, question{verb: create, value: "a"}, answer{outcome: done})
	for _, test := range []struct {
		name string
		ops  []porcupine.Operation
		want porcupine.CheckResult
	}{
		{"what was written is read", []porcupine.Operation{made, op(2, 3, question{verb: read}, answer{done, "a"})}, porcupine.Ok},
		{"a write is lost", []porcupine.Operation{made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: done}), op(4, 5, question{verb: read}, answer{done, "a"})}, porcupine.Illegal},
		{"an object is lost", []porcupine.Operation{made, op(2, 3, question{verb: read}, answer{outcome: missing})}, porcupine.Illegal},
		{"an object is made twice", []porcupine.Operation{made, op(2, 3, question{verb: create, value: "b"}, answer{outcome: done})}, porcupine.Illegal},
		{"an object is not made again", []porcupine.Operation{made, op(2, 3, question{verb: create, value: "b"}, answer{outcome: exists})}, porcupine.Ok},
		{"an object comes back", []porcupine.Operation{made, op(2, 3, question{verb: remove}, answer{outcome: done}), op(4, 5, question{verb: read}, answer{done, "a"})}, porcupine.Illegal},
		{"time goes back", []porcupine.Operation{
			made, op(2, 9, question{verb: patch, value: "b"}, answer{outcome: done}),
			op(3, 4, question{verb: read}, answer{done, "b"}), op(5, 6, question{verb: read}, answer{done, "a"}),
		}, porcupine.Illegal},
		{"an unanswered write may have been done", []porcupine.Operation{made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: unknown}), op(4, 5, question{verb: read}, answer{done, "b"})}, porcupine.Ok},
		{"or not", []porcupine.Operation{made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: unknown}), op(4, 5, question{verb: read}, answer{done, "a"})}, porcupine.Ok},
		{"or not yet", []porcupine.Operation{
			made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: unknown}),
			op(4, 5, question{verb: read}, answer{done, "a"}), op(6, 7, question{verb: read}, answer{done, "b"}),
		}, porcupine.Ok},
		{"but not undone", []porcupine.Operation{
			made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: unknown}),
			op(4, 5, question{verb: read}, answer{done, "b"}), op(6, 7, question{verb: read}, answer{done, "a"}),
		}, porcupine.Illegal},
		{"an update overwrites another", []porcupine.Operation{
			made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: done}),
			op(4, 5, question{verb: update, expected: "a", value: "c"}, answer{outcome: done}),
		}, porcupine.Illegal},
		{"a loss that is reported", []porcupine.Operation{
			made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: done}), lost(4, 5, "b", "", "a", "b"), op(6, 7, question{verb: read}, answer{done, "a"}),
		}, porcupine.Ok},
		{"more than one write is lost", []porcupine.Operation{
			made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: done}), lost(4, 5, "b", "", "a", "b"), op(6, 7, question{verb: read}, answer{outcome: missing}),
		}, porcupine.Ok},
		{"a loss is reported with an older value", []porcupine.Operation{
			made, op(2, 3, question{verb: patch, value: "b"}, answer{outcome: done}), lost(4, 5, "a", "", "a", "b"), op(6, 7, question{verb: read}, answer{outcome: missing}),
		}, porcupine.Illegal},
		{"a write after a loss is lost", []porcupine.Operation{
			made, lost(2, 3, "a", "", "a"), op(4, 5, question{verb: create, value: "c"}, answer{outcome: done}), op(6, 7, question{verb: read}, answer{outcome: missing}),
		}, porcupine.Illegal},
		{"reads differ after a loss", []porcupine.Operation{
			made, lost(2, 3, "a", "", "a"), op(4, 5, question{verb: read}, answer{outcome: missing}), op(6, 7, question{verb: read}, answer{done, "a"}),
		}, porcupine.Illegal},
	} {
		h := &history{operations: test.ops}
		if got, part := h.check(time.Minute); got != test.want {
			t.Errorf("%s: %v, want %v\n%s", test.name, got, test.want, describe(part))
		}
	}
}

// TestUndelete allows a failover to lose deletions, but only those before it, and not those of durable objects that were acknowledged.
func TestUndelete(t *testing.T) {
	made := op(0, 1, question{verb: create, value: "a"}, answer{outcome: done})
	deleted := op(2, 3, question{verb: remove}, answer{outcome: done})
	unanswered := op(2, 3, question{verb: remove}, answer{outcome: unknown})
	missed := op(4, 5, question{verb: read}, answer{outcome: missing})
	back := op(12, 13, question{verb: read}, answer{done, "a"})
	for _, test := range []struct {
		name        string
		from, until time.Duration
		durable     bool
		ops         []porcupine.Operation
		want        porcupine.CheckResult
	}{
		{"a deletion is lost", 6, 11, false, []porcupine.Operation{made, deleted, missed, back}, porcupine.Ok},
		{"an unanswered deletion is lost", 6, 11, false, []porcupine.Operation{made, unanswered, missed, back}, porcupine.Ok},
		{"a durable one is lost", 6, 11, true, []porcupine.Operation{made, deleted, missed, back}, porcupine.Illegal},
		{"an unanswered durable one is lost", 6, 11, true, []porcupine.Operation{made, unanswered, missed, back}, porcupine.Ok},
		{"a deletion after the failover is lost", 0, 1, false, []porcupine.Operation{made, deleted, missed, back}, porcupine.Illegal},
		{"another value comes back", 6, 11, false, []porcupine.Operation{made, deleted, missed, op(12, 13, question{verb: read}, answer{done, "b"})}, porcupine.Illegal},
		{"reads differ after the failover", 6, 11, false, []porcupine.Operation{made, deleted, op(12, 13, question{verb: read}, answer{outcome: missing}), op(14, 15, question{verb: read}, answer{done, "a"})}, porcupine.Illegal},
	} {
		h := &history{operations: test.ops}
		h.undelete(test.from, test.until, func(string) bool { return test.durable })
		if got, part := h.check(time.Minute); got != test.want {
			t.Errorf("%s: %v, want %v\n%s", test.name, got, test.want, describe(part))
		}
	}
}
