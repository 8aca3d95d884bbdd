package entry_test

import (
	"testing"
	"time"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/entry"
)

func TestOf(t *testing.T) {
	until := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        entry.Entry
		open        bool
	}{
		"none":            {map[string]string{"a": "b", names.EntryReasonAnnotation: "left over"}, entry.Entry{}, false},
		"any value opens": {map[string]string{names.EntryAnnotation: ""}, entry.Entry{}, true},
		"all": {map[string]string{
			names.EntryAnnotation: "open", names.EntryUntilAnnotation: "2026-03-04T06:06:07+01:00", names.EntryByAnnotation: "alice", names.EntryReasonAnnotation: "repair",
		}, entry.Entry{Until: until, By: "alice", Reason: "repair"}, true},
		"a time that is none does not close it": {map[string]string{names.EntryAnnotation: "open", names.EntryUntilAnnotation: "tomorrow"}, entry.Entry{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, open := entry.Of(tt.annotations); got != tt.want || open != tt.open {
				t.Errorf("Of() = %+v, %t, want %+v, %t", got, open, tt.want, tt.open)
			}
		})
	}
}

func TestAnnotations(t *testing.T) {
	e := entry.Entry{Until: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Reason: "repair"}
	set := map[string]string{}
	for key, value := range e.Annotations() {
		if text, ok := value.(string); ok {
			set[key] = text
		}
	}
	if got, open := entry.Of(set); got != e || !open {
		t.Errorf("Of(%v) = %+v, %t, want %+v", set, got, open, e)
	}
	if by, named := e.Annotations()[names.EntryByAnnotation]; !named || by != nil {
		t.Errorf("the name of an earlier entry stays: %v, %t", by, named)
	}
	for _, key := range entry.Keys {
		if value, named := entry.Closed()[key]; !named || value != nil {
			t.Errorf("%s is %v after closing", key, value)
		}
	}
}

func TestDescribe(t *testing.T) {
	e := entry.Entry{Until: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), By: "alice", Reason: "repair"}
	for now, want := range map[time.Time]string{
		e.Until.Add(-time.Second): "open until 2026-03-04T05:06:07Z, by alice: repair",
		e.Until:                   "open, although it should have been closed at 2026-03-04T05:06:07Z, by alice: repair",
	} {
		if got := e.Describe(now); got != want {
			t.Errorf("Describe(%s) = %q, want %q", now, got, want)
		}
	}
	if got := (entry.Entry{}).Describe(time.Now()); got != "open" {
		t.Errorf("Describe() = %q", got)
	}
}
