package failover

import (
	"testing"
	"time"
)

func TestWatchdog(t *testing.T) {
	type look struct {
		second    int
		answering []string
		silent    []string
		failed    int
		gives     string
	}
	for _, test := range []struct {
		name  string
		after time.Duration
		looks []look
	}{
		{"off", 0, []look{{0, []string{"a"}, []string{"b"}, 0, ""}, {1000, []string{"a"}, []string{"b"}, 0, ""}}},
		{"silent for long enough", time.Minute, []look{{0, []string{"a"}, []string{"b"}, 0, ""}, {59, []string{"a"}, []string{"b"}, 0, ""}, {60, []string{"a"}, []string{"b"}, 0, "b"}}},
		{"answers in between", time.Minute, []look{{0, []string{"a"}, []string{"b"}, 0, ""}, {59, []string{"a", "b"}, nil, 0, ""}, {60, []string{"a"}, []string{"b"}, 0, ""}, {119, []string{"a"}, []string{"b"}, 0, ""}, {120, []string{"a"}, []string{"b"}, 0, "b"}}},
		{"two at once may be our fault", time.Minute, []look{{0, []string{"a"}, []string{"b", "c"}, 0, ""}, {90, []string{"a"}, []string{"b", "c"}, 0, ""}, {91, []string{"a", "c"}, []string{"b"}, 0, ""}, {150, []string{"a", "c"}, []string{"b"}, 0, ""}, {151, []string{"a", "c"}, []string{"b"}, 0, "b"}}},
		{"an outage of ours ends during a look", time.Minute, []look{{0, nil, []string{"a", "b"}, 0, ""}, {90, []string{"b"}, []string{"a"}, 0, ""}, {91, []string{"a", "b"}, nil, 0, ""}}},
		{"one after the other", time.Minute, []look{{0, []string{"a"}, []string{"b"}, 0, ""}, {50, []string{"b"}, []string{"a"}, 0, ""}, {100, []string{"a"}, []string{"b"}, 0, ""}}},
		{"nobody answers", time.Minute, []look{{0, nil, []string{"a"}, 0, ""}, {90, nil, []string{"a"}, 0, ""}}},
		{"one has been given up already", time.Minute, []look{{0, []string{"a"}, []string{"b"}, 1, ""}, {90, []string{"a"}, []string{"b"}, 1, ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dog := Watchdog{After: test.after}
			for _, l := range test.looks {
				got := dog.See(time.Unix(int64(l.second), 0), Sighting{Answering: l.answering, Silent: l.silent, Failed: l.failed})
				if got != l.gives {
					t.Fatalf("after %d s it gives %q up, want %q", l.second, got, l.gives)
				}
			}
		})
	}
}
