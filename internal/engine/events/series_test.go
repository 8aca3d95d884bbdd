package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// memory keeps events as a cell does.
type memory struct {
	events  map[string]*corev1.Event
	writes  int
	expired bool // patches find nothing
}

func (m *memory) create(_ context.Context, event *corev1.Event) error {
	m.writes++
	m.events[event.Name] = event
	return nil
}

func (m *memory) patch(_ context.Context, _, name string, patch []byte) error {
	m.writes++
	if m.expired {
		return errors.New("not found")
	}
	return json.Unmarshal(patch, m.events[name])
}

func about(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "ResourceBinding", Namespace: "ns", Name: name, UID: types.UID(name)}
}

// flush writes all that waits, without a limit.
func flush(t *testing.T, s *successes, to store) {
	t.Helper()
	for key, in := s.next(); in != nil; key, in = s.next() {
		if _, err := s.write(t.Context(), key, in, to); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSeries folds repeated successes of an object into one event.
func TestSeries(t *testing.T) {
	s, cell := newSuccesses(), &memory{events: map[string]*corev1.Event{}}
	now := time.Unix(1000, 0)
	s.now = func() time.Time { return now }
	for range 5 {
		s.add(about("a"), "SyncWorkSucceed", "first")
		now = now.Add(time.Second)
	}
	s.add(about("a"), "ScheduleBindingSucceed", "placed")
	flush(t, s, cell)
	if cell.writes != 2 || len(cell.events) != 2 {
		t.Fatalf("%d writes for %d events, want 2", cell.writes, len(cell.events))
	}
	now = now.Add(time.Hour)
	s.add(about("a"), "SyncWorkSucceed", "again")
	flush(t, s, cell)
	counts := map[string]string{}
	for _, event := range cell.events {
		counts[event.Reason] = fmt.Sprintf("%d %s", event.Count, event.Message)
		if event.Reason == "SyncWorkSucceed" && (event.Series == nil || event.Series.Count != 6 || !event.LastTimestamp.Time.Equal(now) || event.FirstTimestamp.Unix() != 1000) {
			t.Errorf("the series is %+v, from %v to %v", event.Series, event.FirstTimestamp, event.LastTimestamp)
		}
	}
	if counts["SyncWorkSucceed"] != "6 again" || counts["ScheduleBindingSucceed"] != "1 placed" || cell.writes != 3 {
		t.Errorf("%v after %d writes", counts, cell.writes)
	}
	cell.expired = true
	s.add(about("a"), "SyncWorkSucceed", "later")
	flush(t, s, cell)
	if len(cell.events) != 3 {
		t.Errorf("an expired series is not begun again: %d events", len(cell.events))
	}
}

// TestTooManySuccesses checks that the memory for events is bounded.
func TestTooManySuccesses(t *testing.T) {
	s := newSuccesses()
	for i := range 3 * waiting {
		s.add(about(fmt.Sprint(i)), "SyncWorkSucceed", "")
	}
	if len(s.waiting) != waiting || len(s.order) != waiting {
		t.Errorf("%d wait", len(s.waiting))
	}
}

// TestModes checks what is written at once, later, and not at all.
func TestModes(t *testing.T) {
	for mode, want := range map[Successes]string{
		SuccessesSome: "at once [Failed Succeed Succeed], later []", "": "at once [Failed Succeed Succeed], later []",
		SuccessesAll: "at once [Failed Succeed], later [Succeed More]", SuccessesOff: "at once [Failed], later []",
	} {
		r := &Recorder{outbox: make(chan *corev1.Event, backlog), mode: mode, successes: newSuccesses(), last: lru.New(remembered)}
		r.Failed(about("a"), "works", "Failed", "no")
		r.Failed(about("a"), "works", "Failed", "no")
		r.Succeeded(about("a"), "works", "Succeed", "yes", false)
		r.Succeeded(about("a"), "works", "Succeed", "yes", false)
		r.Succeeded(about("b"), "works", "Succeed", "yes", true)
		r.Also(about("c"), "works", "More", "yes", true)
		r.Succeeded(nil, "works", "Succeed", "yes", true)
		var now, later []string
		for len(r.outbox) > 0 {
			now = append(now, (<-r.outbox).Reason)
		}
		for key, in := r.successes.next(); in != nil; key, in = r.successes.next() {
			later = append(later, key.reason)
		}
		if got := fmt.Sprintf("at once %v, later %v", now, later); got != want {
			t.Errorf("%s: %s, want %s", mode, got, want)
		}
	}
	if _, err := ParseSuccesses("few"); err == nil || !strings.Contains(err.Error(), "some, all or off") {
		t.Errorf("a wrong mode gives %v", err)
	}
}
