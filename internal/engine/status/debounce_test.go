package status

import (
	"strconv"
	"testing"
	"time"
)

func TestDebounce(t *testing.T) {
	d := newDebounce[string](timing{quiet: 2 * time.Second, longest: 5 * time.Second, backlog: time.Minute})
	start := time.Unix(0, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	check := func(when string, now time.Time, want time.Duration) {
		t.Helper()
		if wait := d.wait("k", now); wait != want {
			t.Errorf("%s: held for %v, want %v", when, wait, want)
		}
	}
	check("never changed", start, 0)
	d.changed("k", start)
	check("a second after a change", at(1), time.Second)
	for i := range 5 {
		d.changed("k", at(i))
	}
	check("changes all the time", at(4), time.Second)
	check("overdue", at(9), 0)
	d.written("k")
	check("written", at(9), 0)
	d.changed("k", at(20))
	check("changed again", at(20), 2*time.Second)
}

// TestBounds checks how long the status of one object is held while others are in progress too.
func TestBounds(t *testing.T) {
	for _, test := range []struct {
		name       string
		timing     timing
		inProgress int
		once       time.Duration // held after a single change
		always     time.Duration // held while it changes all the time
	}{
		{"a binding", bindingTiming, 1, 5 * time.Second, 15 * time.Second},
		{"10 bindings", bindingTiming, 10, 5 * time.Second, 15 * time.Second},
		{"50 bindings", bindingTiming, 50, 25 * time.Second, 25 * time.Second},
		{"10000 bindings", bindingTiming, 10000, time.Minute, time.Minute},
		{"a Work", workTiming, 1, 30 * time.Second, time.Minute},
		{"100 Works", workTiming, 100, 50 * time.Second, time.Minute},
		{"10000 Works", workTiming, 10000, 3 * time.Minute, 3 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDebounce[string](test.timing)
			start := time.Unix(0, 0)
			for i := range test.inProgress {
				d.changed(strconv.Itoa(i), start)
			}
			if wait := d.wait("0", start); wait != test.once {
				t.Errorf("held for %v after a single change, want %v", wait, test.once)
			}
			d.changed("0", start.Add(time.Hour))
			if wait := d.wait("0", start); wait != test.always {
				t.Errorf("held for %v while it changes, want %v", wait, test.always)
			}
		})
	}
}
