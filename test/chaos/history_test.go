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
