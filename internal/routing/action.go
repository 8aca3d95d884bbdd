package routing

import (
	"strconv"
	"time"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/slots"
)

// State is what a cell holds under a name.
type State int

// The states of an object in a cell.
const (
	// Absent: no object.
	Absent State = iota
	// Live: the object.
	Live
	// Frozen: an object that is being copied to another cell, or its copy there that is not active yet.
	Frozen
	// Moved: what a finished move has left behind in the old cell.
	Moved
)

// StateOf returns the state of an object that exists, by the value of its rebalance label.
func StateOf(label string) State {
	switch label {
	case "":
		return Live
	case names.RebalanceMigrated:
		return Moved
	default:
		return Frozen
	}
}

// Exists reports whether the object counts as existing in the cell.
func (s State) Exists() bool { return s == Live || s == Frozen }

// String returns the state in lower case.
func (s State) String() string { return [...]string{"absent", "live", "frozen", "moved"}[s] }

// Sighting is what a cell was seen to hold.
type Sighting struct {
	Cell  slots.Index
	State State
	// Version is the object's resourceVersion in the cell, and UID its UID.
	Version, UID string
	// CopiedAt is the annotation with the cell and the resourceVersion of the copy of a moved object.
	CopiedAt string
}

// revision returns the resourceVersion as a number, 0 if it is none.
func (s *Sighting) revision() uint64 {
	revision, err := strconv.ParseUint(s.Version, 10, 63)
	if err != nil {
		return 0
	}
	return revision
}

// Result is a cell's answer to a write.
type Result int

// The results of a write.
const (
	// Done: any answer that needs no further thought, refusals by the API server included.
	Done Result = iota
	// Created: the cell has created the object.
	Created
	// NotFound: the cell does not have the object.
	NotFound
	// Conflict: the object has another resourceVersion than the write asked for.
	Conflict
	// StaleEpoch: the cell accepts only later epochs.
	StaleEpoch
	// ObjectFrozen: the cell accepts no writes to the object, because it is being moved.
	ObjectFrozen
	// ObjectAbsent: the write would have created the object, which its epoch or cell does not permit.
	ObjectAbsent
)

// String returns the result in lower case.
func (r Result) String() string {
	return [...]string{"done", "created", "not found", "conflict", "stale epoch", "object frozen", "object absent"}[r]
}

// Kind is the kind of an Action.
type Kind int

// The kinds of actions. Serve and the following are verdicts: the request is finished.
const (
	// Look: read the object's metadata from Cell, as the gateway.
	Look Kind = iota
	// LookAll: the same in all Cells.
	LookAll
	// Fetch: send the client's read to Cell.
	Fetch
	// Send: send the client's write as Send says.
	Send
	// List: send the client's list to all Cells, concurrently.
	List
	// Confirm: ask Cell whether it still accepts the view's epoch.
	Confirm
	// ConfirmAll: ask all Cells.
	ConfirmAll
	// Wait: wait for the time For.
	Wait
	// AwaitView: wait until Deadline for a view that Replaces the present one.
	AwaitView
	// Serve: the last answer to Fetch, Send or List is the one for the client.
	Serve
	// Forward: pass the request on to Cell as it comes.
	Forward
	// Refuse: answer with Reason.
	Refuse
	// Fail: answer with the error of the last failed request.
	Fail
)

// Reason is why a request is refused.
type Reason int

// The reasons for a refusal.
const (
	// HeldTooLong: the object kept moving, or no newer view arrived (429, to be retried).
	HeldTooLong Reason = iota
	// AlreadyExists: the object to be created exists in the old cell (409).
	AlreadyExists
	// Vanished: only the remains of a moved object were found (404).
	Vanished
	// UnknownOutcome: the cell stored the new object, possibly after it had lost its slot, and what became of it was not found out (504).
	UnknownOutcome
)

// Action is what the caller does next.
type Action struct {
	Kind Kind
	// Cell is the cell of Look, Fetch, Send, Confirm and Forward.
	Cell slots.Index
	// Cells are those of LookAll, List and ConfirmAll.
	Cells []slots.Index
	// Write says how a write is sent.
	Write Write
	// For is how long to wait.
	For time.Duration
	// Deadline is when AwaitView ends.
	Deadline time.Time
	// Reason is that of Refuse.
	Reason Reason
	// Keep says that the last answer to Send may still be served. If the action fails, the outcome of the request is unknown.
	Keep bool
}

// Write says how a write is sent to a cell.
type Write struct {
	// Epoch is the epoch that the write carries.
	Epoch int64
	// Existing forbids the cell to create an object.
	Existing bool
	// Pinned is the resourceVersion that the object must still have; "" means any.
	Pinned string
}

// Final reports whether the action is a verdict.
func (a Action) Final() bool { return a.Kind >= Serve }

// Input is the outcome of the last Action. Only the fields of that action's kind are read.
type Input struct {
	// State is the state of the object that Look or Fetch has read.
	State State
	// Version is the resourceVersion that Look has read.
	Version string
	// Found is what LookAll has found. Unreachable says that some cells did not answer.
	Found       []Sighting
	Unreachable bool
	// Result is the answer to Send.
	Result Result
	// Listed are the cells that have answered List.
	Listed []slots.Index
	// Stale says that a cell did not confirm the epoch. After a Confirm with Keep, Unreachable says that it did not answer.
	Stale bool
	// UID is that of the object in the last answer to Send, if a Confirm with Keep has failed; "" if there is none.
	UID string
	// View is the view that AwaitView has waited for, nil if none arrived; or the present one after Wait.
	View *View
}

// Bounds are the time limits of a request.
type Bounds struct {
	// Hold is how long a request waits for an object or a view.
	Hold time.Duration
	// Outcome is how long a request waits to find out what became of the object it has created.
	Outcome time.Duration
	// WriteDrain is how long after its epoch was refused a write may still be stored.
	WriteDrain time.Duration
}
