package chaos

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// verb is what a client does to an object.
type verb string

const (
	create verb = "create"
	read   verb = "read"
	update verb = "update" // if the object still is what the client has read
	patch  verb = "patch"
	remove verb = "delete"
)

// question is what a client asks for.
type question struct {
	verb verb
	key  string
	// value is what the object is to have.
	value string
	// expected is the value that the client has read before an update.
	expected string
}

// outcome is how a question was answered.
type outcome string

const (
	done     outcome = "done"
	exists   outcome = "exists"
	missing  outcome = "missing"
	conflict outcome = "conflict"
	// unknown: it may have been done, or may still be.
	unknown outcome = "unknown"
)

// answer is what a client was told.
type answer struct {
	outcome outcome
	// value is what was read.
	value string
}

// history is what all clients have noted.
type history struct {
	begun time.Time

	mu         sync.Mutex
	operations []porcupine.Operation
}

func newHistory() *history { return &history{begun: time.Now()} }

// ask notes an operation. Questions that were not answered have no end; a read without an answer says nothing.
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

// object is what a plain store has under a key: nothing if it is empty.
type object string

// model is a plain store of one key.
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

// step returns what a store can have after an operation; nothing if it would have answered otherwise.
func step(before object, q question, a answer) []any {
	after, applies := apply(before, q)
	switch a.outcome {
	case unknown:
		if applies {
			return []any{before, after}
		}
		return []any{before}
	case conflict:
		return []any{before} // versions change by more than what clients write
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

// apply does what is asked for, if that can be done.
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

// check returns the history of the first key for which there is no order, or that could not be checked in time.
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

// describe writes down the operations of a key, in the order of their questions.
func describe(part []porcupine.Operation) string {
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	text := ""
	for _, o := range part {
		q, a := o.Input.(question), o.Output.(answer)
		end := "never"
		if o.Return != math.MaxInt64 {
			end = time.Duration(o.Return).String()
		}
		text += fmt.Sprintf("client %d, %v to %s: %s %s %q (was %q): %s %q\n", o.ClientId, time.Duration(o.Call), end, q.verb, q.key, q.value, q.expected, a.outcome, a.value)
	}
	return text
}
