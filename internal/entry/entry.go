// Package entry tells which objects of members are out of the federation's hands.
//
// An annotation of the object itself says so, so that it can be set in a member while the federation is down. While it is
// there no engine writes to the object or deletes it.
package entry

import (
	"fmt"
	"time"

	"github.com/cellplane/cellplane/api/names"
)

// Entry is who has opened an object to its member, for how long and why. All of it is optional.
type Entry struct {
	// Until is when the entry should be closed, the zero time if nobody has said so.
	Until      time.Time
	By, Reason string
}

// Of returns the entry of an object with these annotations, and whether there is one. The key decides, whatever its
// value is: in an emergency nobody should have to remember a value.
func Of(annotations map[string]string) (Entry, bool) {
	if _, open := annotations[names.EntryAnnotation]; !open {
		return Entry{}, false
	}
	e := Entry{By: annotations[names.EntryByAnnotation], Reason: annotations[names.EntryReasonAnnotation]}
	if until, err := time.Parse(time.RFC3339, annotations[names.EntryUntilAnnotation]); err == nil {
		e.Until = until.UTC()
	}
	return e, true
}

// Annotations returns the annotations that open an entry. Those to remove are nil.
func (e Entry) Annotations() map[string]any {
	annotations := Closed()
	annotations[names.EntryAnnotation] = "open"
	for key, value := range map[string]string{names.EntryByAnnotation: e.By, names.EntryReasonAnnotation: e.Reason} {
		if value != "" {
			annotations[key] = value
		}
	}
	if !e.Until.IsZero() {
		annotations[names.EntryUntilAnnotation] = e.Until.UTC().Format(time.RFC3339)
	}
	return annotations
}

// Closed returns a patch of annotations that closes an entry.
func Closed() map[string]any {
	closed := map[string]any{}
	for _, key := range Keys {
		closed[key] = nil
	}
	return closed
}

// FieldManager is the field manager of those who open and close entries. It is not that of the federation: an entry is no part of what it wants.
const FieldManager = "cellplane-entry"

// Keys are the annotations of an entry.
var Keys = []string{names.EntryAnnotation, names.EntryUntilAnnotation, names.EntryReasonAnnotation, names.EntryByAnnotation}

// Overdue reports whether the entry should have been closed.
func (e Entry) Overdue(now time.Time) bool { return !e.Until.IsZero() && !now.Before(e.Until) }

// Describe says in whose hands an object is, such as "until 2026-01-02T15:04:05Z, by alice: repair". The text changes
// only when the entry becomes overdue.
func (e Entry) Describe(now time.Time) string {
	text := "open"
	switch {
	case e.Overdue(now):
		text = fmt.Sprintf("open, although it should have been closed at %s", e.Until.Format(time.RFC3339))
	case !e.Until.IsZero():
		text = "open until " + e.Until.Format(time.RFC3339)
	}
	if e.By != "" {
		text += ", by " + e.By
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}
