package chaos

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// verb is the kind of an operation.
type verb string

const (
	create verb = "create"
	read   verb = "read"
	update verb = "update" // on the condition that the object is unchanged
	patch  verb = "patch"
	remove verb = "delete"
	// lose is a failover that loses the last writes of an object. It has been reported with its last value.
	lose verb = "lose"
	// undelete is a failover that loses the deletion of an object.
	undelete verb = "undelete"
)

// question is the input of an operation.
type question struct {
	verb verb
	key  string
	// value is the value to write.
	value string
	// expected is the value that the client read before an update, or the last value of an object that has lost writes.
	expected string
	// gateway is the address of the gateway that was asked.
	gateway string
	// candidates are the values that an object may have after it has lost writes or its deletion.
	candidates *[]any
}

// outcome is the result of an operation.
type outcome string

const (
	done     outcome = "done"
	exists   outcome = "exists"
	missing  outcome = "missing"
	conflict outcome = "conflict"
	// unknown: it may have been done, or may be done later.
	unknown outcome = "unknown"
)

// answer is the output of an operation.
type answer struct {
	outcome outcome
	// value is the value that was read.
	value string
}

// history is the operations of all clients.
type history struct {
	begun time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
}

func newHistory() *history { return &history{begun: time.Now()} }

// ask records an operation. One with an unknown outcome has no end; an unanswered read is not recorded.
func (h *history) ask(client int, q question, do func() (answer, bool)) answer {
	call := time.Since(h.begun).Nanoseconds()
	a, counts := do()
	end := time.Since(h.begun).Nanoseconds()
	if !counts || (q.verb == read && a.outcome == unknown) {
		return a
	}
	if a.outcome == unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: q, Call: call, Output: a, Return: end})
	return a
}

// lose records that objects have lost their last writes during a failover: those whose last values were reported.
func (h *history) lose(reported map[string]string, from, until time.Duration) {
	for key, last := range reported {
		candidates := []any{object("")}
		unsure := false
		known := false
		for _, o := range h.operations {
			q, a := o.Input.(question), o.Output.(answer)
			if q.key != key || q.verb == read || q.verb == remove || o.Call > until.Nanoseconds() || (a.outcome != done && a.outcome != unknown) {
				continue
			}
			known = true
			candidates = append(candidates, object(q.value))
			unsure = unsure || (q.value == last && a.outcome == unknown)
		}
		if !known {
			continue // not an object of the history
		}
		q := question{verb: lose, key: key, expected: last, candidates: &candidates}
		a := answer{outcome: done}
		if unsure {
			a.outcome = unknown
		}
		h.operations = append(h.operations, porcupine.Operation{ClientId: 99, Input: q, Output: a, Call: from.Nanoseconds(), Return: until.Nanoseconds()})
	}
}

// undelete records that deletions may be lost during a failover: those that had not reached a backup. They are reported only if the object still exists
// when the cell returns. Acknowledged deletions of durable objects are not lost.
func (h *history) undelete(from, until time.Duration, durable func(key string) bool) {
	values, deleted := map[string][]any{}, map[string]bool{}
	for _, o := range h.operations {
		q, a := o.Input.(question), o.Output.(answer)
		switch {
		case o.Call > until.Nanoseconds() || (a.outcome != done && a.outcome != unknown):
		case q.verb == remove:
			deleted[q.key] = deleted[q.key] || a.outcome == unknown || !durable(q.key)
		case q.verb == create || q.verb == update || q.verb == patch:
			values[q.key] = append(values[q.key], object(q.value))
		}
	}
	for key := range deleted {
		if candidates := values[key]; deleted[key] && len(candidates) > 0 {
			h.operations = append(h.operations, porcupine.Operation{
				ClientId: 98, Input: question{verb: undelete, key: key, candidates: &candidates}, Output: answer{outcome: done}, Call: from.Nanoseconds(), Return: until.Nanoseconds(),
			})
		}
	}
}

// object is the value of a key in a single store; empty if there is none.
type object string

// model is a single store of one key.
var model = porcupine.NondeterministicModel{
	Partition: func(operations []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		var keys []string
		for _, o := range operations {
			key := o.Input.(question).key
			if byKey[key] == nil {
				keys = append(keys, key)
			}
			byKey[key] = append(byKey[key], o)
		}
		slices.Sort(keys)
		parts := make([][]porcupine.Operation, 0, len(keys))
		for _, key := range keys {
			parts = append(parts, byKey[key])
		}
		return parts
	},
	Init: func() []any { return []any{object("")} },
	Step: func(state, input, output any) []any {
		return step(state.(object), input.(question), output.(answer))
	},
	DescribeOperation: func(input, output any) string {
		q, a := input.(question), output.(answer)
		return fmt.Sprintf("%s %s%s → %s%s", q.verb, q.expected, q.value, a.outcome, a.value)
	},
}

// step returns the possible states after an operation; none if a store would have answered otherwise.
func step(before object, q question, a answer) []any {
	if q.verb == lose {
		// A write with an unknown outcome may reach the failed cell after everything else.
		if a.outcome == done && string(before) != q.expected {
			return nil
		}
		return *q.candidates
	}
	if q.verb == undelete {
		if before != "" {
			return []any{before}
		}
		return append([]any{before}, *q.candidates...)
	}
	after, applies := apply(before, q)
	switch a.outcome {
	case unknown:
		if applies {
			return []any{before, after}
		}
		return []any{before}
	case conflict:
		return []any{before} // versions also change for other reasons than writes of clients
	case exists:
		applies = q.verb == create && before != ""
		after = before
	case missing:
		applies = q.verb != create && before == ""
		after = before
	case done:
		applies = applies && (q.verb != read || string(before) == a.value)
	}
	if !applies {
		return nil
	}
	return []any{after}
}

// apply applies an operation, and reports whether it is possible.
func apply(before object, q question) (after object, applies bool) {
	switch q.verb {
	case create:
		return object(q.value), before == ""
	case read:
		return before, before != ""
	case update:
		return object(q.value), before != "" && string(before) == q.expected
	case patch:
		return object(q.value), before != ""
	default:
		return "", before != ""
	}
}

// check returns the operations of the first key that are not linearizable, or that could not be checked in time.
func (h *history) check(within time.Duration) (result porcupine.CheckResult, part []porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := model.Partition(h.operations)
	whole := model
	whole.Partition = nil
	for _, part := range parts {
		if result := porcupine.CheckOperationsTimeout(whole.ToModel(), part, within); result != porcupine.Ok {
			return result, part
		}
	}
	return porcupine.Ok, nil
}

// describe prints the operations of a key, by their begin.
func describe(part []porcupine.Operation) string {
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	text := ""
	for _, o := range part {
		q, a := o.Input.(question), o.Output.(answer)
		end := "never"
		if o.Return != math.MaxInt64 {
			end = time.Duration(o.Return).String()
		}
		text += fmt.Sprintf("client %d by %s, %v to %s: %s %s %q (was %q): %s %q\n", o.ClientId, q.gateway, time.Duration(o.Call), end, q.verb, q.key, q.value, q.expected, a.outcome, a.value)
	}
	return text
}
